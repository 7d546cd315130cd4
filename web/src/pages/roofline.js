// A dot for each signature: what it does per byte, and how fast.
import { axis, base, draw, tip } from "../chart.js";
import { grouped, total } from "../cube.js";
import { measureGroups } from "../measures.js";
import { showTable } from "../table.js";
import { el, multiline, NONE, shown } from "../text.js";
import { color } from "../theme.js";
import { byteUnit, counted, flopUnit, integer, percent, quantity, rate, time } from "../units.js";
import { legend } from "./parts.js";

export const roofline = { id: "roofline", title: "Roofline", render };

const WIDE = 800;
const LINES = ["solid", "dashed", "dotted"];

function render(host, app) {
  host.append(el("h2", {}, "Roofline"));
  const dots = signatures(app);
  const seen = dots.filter(({ tflops, intensity }) => tflops > 0 && intensity > 0);
  const devices = app.doc.roofline?.devices ?? [];
  const detail = el("section", { class: "detail", "aria-live": "polite" });
  const explain = (dot) => showExplain(app, detail, dot);
  if (seen.length) chart(host, app, seen, devices, explain);
  else host.append(el("p", { class: "empty" }, "No signature of the selection has both FLOPs and bytes that are known."));
  host.append(legend([["--matrix", "bound by compute"], ["--compute", "bound by memory, or not known"]]));
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

function chart(host, app, dots, devices, explain) {
  const box = el("div", { class: "chart tall" });
  host.append(box);
  const chosen = roofsOf(app, devices);
  const { chart: drawn, dispose } = draw(box, `Roofline of ${counted(dots.length, "signature")}; the table below has the same numbers`, () => option(dots, chosen));
  drawn.on("click", ({ seriesType, dataIndex }) => seriesType === "scatter" && explain(dots[dataIndex]));
  app.onLeave(dispose);
}

/** The roofs of the selected rank; of several devices with the same roofs, one. */
function roofsOf(app, devices) {
  const rank = app.state.get("rank");
  const found = new Map();
  for (const device of devices) {
    if (rank === null || String(device.rank) === rank) found.set(device.peaks_of, device);
  }
  return [...found.values()].filter(({ bandwidth, peaks }) => bandwidth && peaks?.length);
}

function option(dots, devices) {
  const wide = window.innerWidth > WIDE;
  const left = Math.min(...dots.map(({ intensity }) => intensity)) / 2;
  const knees = devices.flatMap(({ bandwidth, peaks }) => peaks.map((peak) => peak.flops_per_s / bandwidth));
  const right = Math.max(...dots.map(({ intensity }) => intensity), ...knees) * 4;
  const log = (name, form) => axis({
    type: "log", name, nameLocation: "middle", nameGap: 30,
    minorSplitLine: { show: false }, axisLabel: { color: color("--text"), hideOverlap: true, formatter: form },
  });
  const lines = devices.flatMap((device, place) => merged(device.peaks).map((peak) => roof(device, peak, left, right, LINES[place % 3], wide)));
  return {
    ...base(),
    grid: { left: 32, right: wide ? 220 : 24, top: 24, bottom: 40, containLabel: true },
    xAxis: { ...log("FLOP per byte", (value) => rate(value)), min: left, max: right },
    yAxis: { ...log("FLOP/s", (value) => quantity(value, flopUnit).replace("FLOP", "")), nameGap: 56 },
    tooltip: { ...base().tooltip, trigger: "item", formatter: ({ seriesType, dataIndex, name }) => (seriesType === "scatter" ? dotTip(dots[dataIndex]) : tip(name)) },
    series: [...lines, dotSeries(dots)],
  };
}

/** Peaks of the same height as one, with all their names. */
function merged(peaks) {
  const found = new Map();
  for (const { dtype, flops_per_s: peak, matrix } of peaks) {
    const same = found.get(peak) ?? { flops_per_s: peak, matrix: false, names: [] };
    same.names.push(`${shown(dtype)}${matrix ? " matrix" : ""}`);
    found.set(peak, { ...same, matrix: same.matrix || matrix });
  }
  return [...found.values()];
}

/** The line of a roof: as fast as the memory allows, up to the peak. */
function roof(device, { names, flops_per_s: peak, matrix }, left, right, type, wide) {
  const knee = peak / device.bandwidth;
  const from = Math.min(left, knee);
  const name = `${names.join(", ")}: ${quantity(peak, flopUnit)}/s`;
  return {
    type: "line", name, symbol: "none", silent: true, z: wide ? 1 : 3,
    lineStyle: { color: color(matrix ? "--matrix" : "--muted"), type, width: 1.5 },
    data: [[from, from * device.bandwidth], [knee, peak], [right, peak]],
    endLabel: { show: true, formatter: name, color: color("--text"), fontSize: 11, ...(wide ? {} : { align: "right", offset: [-4, -8] }) },
    labelLayout: { moveOverlap: "shiftY" },
  };
}

function dotSeries(dots) {
  const most = dots[0].time_ns;
  return {
    type: "scatter", name: "signatures", z: 2,
    data: dots.map((dot) => ({
      value: [dot.intensity, dot.tflops * 1e12],
      symbolSize: 5 + 32 * Math.sqrt(dot.time_ns / most),
      itemStyle: { color: color(dot.bound === "compute" ? "--matrix" : "--compute"), opacity: 0.65, borderColor: color("--page") },
    })),
  };
}

function dotTip(dot) {
  return tip(dot.signature, [
    ["op", dot.op],
    ["rank", dot.rank],
    ["time", `${time(dot.time_ns)} (${percent(dot.share_pct)})`],
    ["kernels", dot.count],
    ["FLOPs", quantity(dot.flops, flopUnit)],
    ["bytes", quantity(dot.bytes, byteUnit)],
    ["TFLOP/s", rate(dot.tflops)],
    ["GB/s", rate(dot.gbps)],
    ["FLOP/B", rate(dot.intensity)],
    ["of the roof", percent(dot.roofline_pct)],
    ["bound by", dot.bound],
    ["flag", dot.flag],
  ].filter(([, value]) => value !== null));
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
      { name: "flag", text: true, minWidth: 120, grow: 2 },
    ],
    rows: dots,
    sort: "time_ns",
    enter: explain,
    enterHelp: "click or Enter: what its numbers rest on",
    empty: "No signature is selected.",
  });
}
