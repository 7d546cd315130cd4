// Costs of lines of code, as a tree: the time of a line holds that of all lines that it calls.
import { Table } from "../document.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, multiline, shown, titled } from "../text.js";
import { counted } from "../units.js";
import { choice } from "./breakdown.js";

export const tree = { id: "tree", title: "Line tree", uses: [], render };

const PHASES = ["forward", "backward", "optimizer", "recompute", "other"];
const DEPTHS = [2, 4, 6, 8, 12];

function render(host, app) {
  host.append(el("h2", {}, "Line tree"));
  const found = app.doc.lines;
  if (!found) {
    host.append(el("p", { class: "empty" }, multiline(`No line of code was recorded. To record them: ${app.doc.meta.how_to_record.sources}.`)));
    return;
  }
  host.append(el("p", { class: "hint" }, multiline(words(found))));
  const nodes = new Table(found.nodes);
  const depth = Number(app.state.get("depth")) || null;
  const rows = nodes.records().filter((row) => depth === null || row.depth <= depth).map((row, index) => ({ ...row, _index: index }));
  const depths = [["", "all"], ...DEPTHS.map((each) => [each, `${each} levels`])];
  app.view = showTable(host, app, {
    label: "Line tree",
    columns: columns(nodes, found),
    rows,
    tools: [choice("depth", depth ?? "", depths, (value) => app.state.go({ depth: value }))],
    enter: (row) => enter(app, row),
    enterHelp: "click or Enter: its ops",
    empty: "Nothing ran for any line.",
  });
}

/** The subject of the table. */
function words({ ledger, ranks, steps, step_numbers: numbers, apart, left_out: left, functions }) {
  const what = ledger === "device" ? "Time of kernels and copies, by the line that launched them" : "Time of the step\u2019s thread, by the line that it ran";
  const of = numbers ? `, sum of ${steps} steps (${numbers})` : ", of all that was recorded";
  const several = ranks.length > 1 ? ` of ${ranks.length} ranks` : "";
  return [
    `${what}${of}${several}. A row holds the rows below it that stand further in. Idle caused is idle time of devices while the host was there: no part of the time.`,
    apart.length ? ` Left out as an outlier: ${apart.join(", ")}.` : "",
    functions ? " Frames of torch.profiler: a line is where its function begins." : "",
    left ? ` Left out: ${counted(left, "row")} with the least time; pyprof2 lines has all.` : "",
  ].join("");
}

function columns(nodes, { ledger }) {
  const used = PHASES.map((phase) => `${phase}_ns`).filter((name) => nodes.has(name) && nodes.column(name).values.some((value) => value));
  const numbers = [
    { name: "time_ns", help: "with what is below" }, { name: "own_ns", help: "of it in no other row" },
    { name: "share_pct" }, { name: "median_ns", help: "of a step" }, ...used.map((name) => ({ name })),
    ...(ledger === "device" ? [{ name: "idle_caused_ns", help: "idle time of devices while the host was here" }] : []),
    { name: "calls" },
  ];
  const label = { name: "name", text: true, grow: 8, minWidth: 420, cell: (value, row) => labelCell(value, row) };
  return [label, { name: "module", text: true, minWidth: 140, grow: 2 }, ...numbers];
}

/** A name, further in the deeper it stands. */
function labelCell(value, { label, depth, kind }) {
  const node = el("span", { class: "name", title: titled(value), "data-kind": kind }, shown(label));
  node.style.paddingLeft = `min(${Math.max(0, depth - 1) * 0.9}em, 50%)`;
  return node;
}

function enter(app, { kind, name }) {
  const column = kind === "line" ? "source" : "op";
  const texts = app.cube.table.column(column).texts ?? [];
  if (["line", "op"].includes(kind) && texts.includes(name)) app.state.open("ops", { [column]: encodeText(name, texts) });
  else app.announce("No kernel belongs to this row alone.");
}
