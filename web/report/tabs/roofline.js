// A dot for each signature: what it does per byte, and how fast.
import { grouped, total } from "../cube.js";
import { measureGroups } from "../measures.js";
import { showTable } from "../table.js";
import { el, multiline, NONE, shown } from "../text.js";
import { counted, integer } from "../units.js";
import { legend } from "./parts.js";
import { drawRoofs } from "./roofs.js";

export const roofline = { id: "roofline", title: "Roofline", render };

function render(host, app) {
  host.append(el("h2", {}, "Roofline"));
  const dots = signatures(app);
  const seen = dots.filter(({ tflops, intensity }) => tflops > 0 && intensity > 0);
  const detail = el("section", { class: "detail", "aria-live": "polite" });
  const explain = (dot) => showExplain(app, detail, dot);
  if (seen.length) drawRoofs(host, app, seen, roofsOf(app), explain);
  else host.append(el("p", { class: "empty" }, "No signature of the selection has both FLOPs and bytes that are known."));
  const ringed = seen.some(({ flag }) => flag) ? [["ring", "above its roof, with the reason"]] : [];
  host.append(legend([["--matrix", "bound by compute"], ["--compute", "bound by memory, or not known"], ...ringed]));
  host.append(el("p", { class: "hint" }, `${integer(seen.length)} of ${counted(dots.length, "signature")} have FLOPs and bytes that are known. The size of a dot is its time. A click on a dot or a row shows what its numbers rest on.`));
  host.append(detail);
  table(host, app, dots, explain);
}

/** Sums of each signature of the selection, with what is known of it. */
function signatures(app) {
  const { cube } = app;
  const rows = app.rows();
  const whole = total(cube.table, rows, "time_ns") ?? 0;
  const known = verdicts(app);
  const dots = [];
  for (const [rank, own] of grouped(cube.table, rows, "rank")) {
    const groups = grouped(cube.table, own, "signature");
    groups.delete(NONE);
    const lists = [...groups.values()];
    const found = measureGroups(cube, cube.groupOf(lists), lists.length, whole);
    [...groups.keys()].forEach((signature, index) => {
      const verdict = known.get(`${rank}\n${signature}`) ?? {};
      const op = cube.table.at("op", lists[index][0]);
      dots.push({ rank, signature, op, bound: verdict.bound ?? null, flag: verdict.flag ?? null, explain: verdict.explain ?? null, kernel_id: verdict.kernel_id ?? null, ...found[index] });
    });
  }
  return dots.sort((a, b) => b.time_ns - a.time_ns).map((dot, index) => ({ ...dot, _index: index }));
}

function verdicts(app) {
  const table = app.roofs;
  const found = new Map();
  for (const row of table.all()) found.set(`${table.at("rank", row)}\n${table.at("signature", row)}`, table.record(row));
  return found;
}

/** The roofs of the selected rank; of several devices with the same roofs, one. */
function roofsOf(app) {
  const rank = app.state.get("rank");
  const found = new Map();
  for (const device of app.doc.roofline?.devices ?? []) {
    if (rank === null || String(device.rank) === rank) found.set(device.peaks_of, device);
  }
  return [...found.values()].filter(({ bandwidth, peaks }) => bandwidth && peaks?.length);
}

/** The command line that prints what the numbers of a signature rest on. */
function explainCommand(app, { rank, kernel_id: kernel }) {
  const line = app.doc.meta.command.replace(" prof ", " explain ");
  return `${line} kernel:${kernel}${app.doc.meta.ranks.length > 1 ? ` --rank ${rank}` : ""}`;
}

function showExplain(app, detail, dot) {
  detail.replaceChildren(
    el("h3", {}, shown(dot.signature)),
    el("pre", { tabindex: "0" }, dot.explain ? multiline(dot.explain) : `Left out of this file, which has what the first signatures rest on. To see it:\n${explainCommand(app, dot)}`));
  detail.scrollIntoView({ block: "nearest" });
}

function table(host, app, dots, explain) {
  const numbers = ["count", "time_ns", "share_pct", "flops", "bytes", "tflops", "gbps", "intensity", "roofline_pct"];
  app.view = showTable(host, app, {
    label: "Signatures",
    columns: [
      { name: "signature", text: true, grow: 8, minWidth: 240 },
      ...(app.doc.meta.ranks.length > 1 ? [{ name: "rank" }] : []),
      ...numbers.map((name) => ({ name, help: app.help(name) })),
      { name: "bound", text: true, minWidth: 100, grow: 1 },
      { name: "flag", text: true, minWidth: 220, grow: 4 },
    ],
    rows: dots,
    sort: "time_ns",
    enter: explain,
    enterHelp: "click or Enter: what its numbers rest on",
    empty: "No signature is selected.",
  });
}
