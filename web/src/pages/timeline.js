// The median step, the slowest and the selected one: what each stream did, and why it did nothing.
import { axis, base, draw, slider, textWidth, tip } from "../chart.js";
import { Column } from "../document.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, shown } from "../text.js";
import { color } from "../theme.js";
import { counted, shortTime, time } from "../units.js";
import { choice, placeOf } from "./breakdown.js";
import { legend } from "./parts.js";

export const timeline = { id: "timeline", title: "Timeline", uses: ["rank", "step"], render };

const TONES = {
  matmul: "--matrix", conv: "--matrix", attention: "--matrix", comm: "--comm", memcpy: "--copies", memset: "--copies",
};
const IDLE_TONES = { "host late": "--idle-0", "host waits for the device": "--warn", device: "--idle-2", recording: "--idle-4" };
const LEGEND = [
  ["--matrix", "matrix products, convolutions, attention"], ["--compute", "other kernels and ops"],
  ["--comm", "communication"], ["--copies", "copies"], ...Object.entries(IDLE_TONES).map(([group, tone]) => [tone, `idle: ${group}`]),
];
const ORDER = ["median", "slowest", "step", "recording"];
const ROW = 26;

function render(host, app) {
  host.append(el("h2", {}, "Timeline"));
  const windows = chosenWindows(app);
  if (!windows.length) {
    const words = app.doc.timeline.length
      ? "The selected step or rank is not among those that the report carries: the median, the slowest, and those named when it was made."
      : "Nothing was recorded that could be drawn.";
    host.append(el("p", { class: "empty" }, words, " pyprof2 export --perfetto writes all of it for ui.perfetto.dev."));
    return;
  }
  const place = placeOf(app, windows);
  const window = windows[place];
  host.append(el("div", { class: "toolbar" },
    choice("window", place, windows.map((each, index) => [index, title(each)]), (value) => app.state.go({ window: value }))));
  host.append(el("p", { class: "hint" }, "Ctrl and the wheel, or the bar below: widen. A click on a box: its op. What is narrower than a pixel is merged; pyprof2 export --perfetto writes everything for ui.perfetto.dev."));
  if (!app.doc.meta.has_gpu) host.append(el("p", { class: "hint" }, "No work of a GPU was recorded: a lane for each thread, with the ops that are in no other."));
  const boxes = boxesOf(window);
  host.append(legend(LEGEND.filter(([tone]) => boxes.some((box) => toneOf(box) === tone))));
  chart(host, app, window, boxes);
  table(host, app, boxes);
}

function title({ why, step, rank, device, start_ns, end_ns }) {
  const place = device === null ? `rank ${rank}` : `rank ${rank}, device ${device}`;
  if (why === "recording") return `all of ${place}, ${shortTime(end_ns - start_ns)}`;
  return `${why === "step" ? "" : `${why}: `}step ${step}, ${place}, ${shortTime(end_ns - start_ns)}`;
}

function chosenWindows(app) {
  const { state, doc } = app;
  const fits = (name, window) => state.get(name) === null || String(window[name]) === state.get(name);
  const found = doc.timeline.filter((window) => fits("rank", window) && fits("step", window));
  return found.sort((a, b) => ORDER.indexOf(a.why) - ORDER.indexOf(b.why));
}

/** All boxes of a window, one after another. */
function boxesOf(window) {
  const found = [];
  window.tracks.forEach(({ name, kind, boxes }, track) => {
    const rows = boxes.start_ns.length;
    const column = (key) => new Column(boxes[key], rows);
    const [names, ops, layers, categories, counts, busy] = ["name", "op", "layer", "category", "count", "busy_ns"].map(column);
    for (let row = 0; row < rows; row += 1) {
      found.push({
        _index: found.length, _track: track, _kind: kind, track: name,
        start_ns: boxes.start_ns[row] - window.start_ns, dur_ns: boxes.dur_ns[row],
        name: names.at(row), op: ops.at(row), layer: layers.at(row), category: categories.at(row), count: counts.at(row), busy_ns: busy.at(row),
      });
    }
  });
  return found;
}

function chart(host, app, window, boxes) {
  const box = el("div", { class: "chart" });
  box.style.height = `${110 + ROW * window.tracks.length}px`;
  host.append(box);
  const words = `Timeline of ${title(window)}, ${counted(window.tracks.length, "track")}; the table below has the same boxes`;
  const { chart: drawn, dispose } = draw(box, words, () => option(window, boxes));
  drawn.on("click", ({ dataIndex }) => enter(app, boxes[dataIndex]));
  app.onLeave(dispose);
}

function toneOf({ _kind, category }) {
  if (_kind === "idle") return IDLE_TONES[category] ?? "--idle-5";
  return TONES[category] ?? "--compute";
}

function option(window, boxes) {
  const names = window.tracks.map(({ name }) => shown(name));
  return {
    ...base(),
    grid: { left: 8 + Math.min(160, Math.max(...names.map(textWidth))), right: 16, top: 8, bottom: 72 },
    xAxis: axis({ type: "value", min: 0, max: window.end_ns - window.start_ns, axisLabel: { color: color("--text"), hideOverlap: true, formatter: (value) => shortTime(Math.round(value)) } }),
    yAxis: axis({ type: "category", data: names, inverse: true, axisTick: { show: false }, axisLabel: { color: color("--text"), width: 150, overflow: "truncate", interval: 0 } }),
    dataZoom: [
      { type: "inside", filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false },
      slider({ filterMode: "weakFilter", labelFormatter: (value) => shortTime(Math.round(value)) }),
    ],
    tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => boxTip(boxes[dataIndex]) },
    series: [{
      type: "custom", renderItem: drawBox, encode: { x: [1, 2], y: 0 }, progressive: 0,
      data: boxes.map((each) => ({
        value: [each._track, each.start_ns, each.start_ns + each.dur_ns],
        itemStyle: { color: color(toneOf(each)) },
      })),
    }],
  };
}

function drawBox(params, api) {
  const [x, y] = api.coord([api.value(1), api.value(0)]);
  const [end] = api.coord([api.value(2), api.value(0)]);
  const { x: left, width } = params.coordSys;
  const from = Math.max(x, left);
  const to = Math.min(Math.max(end, x + 1), left + width);
  if (to <= from) return null;
  return { type: "rect", shape: { x: from, y: y - ROW / 2 + 2, width: to - from, height: ROW - 4 }, style: { fill: api.visual("color") } };
}

function boxTip(box) {
  return tip(box.name, [
    ["start", time(box.start_ns)],
    ["time", time(box.dur_ns)],
    ["of it busy", box.count > 1 && box._kind !== "idle" ? time(box.busy_ns) : null],
    ["op", box.op],
    ["layer", box.layer],
    [box._kind === "idle" ? "group" : "category", box.category],
    ["merged", box.count > 1 ? box.count : null],
  ].filter(([, value]) => value !== null));
}

function enter(app, { op }) {
  if (op !== null) app.state.open("ops", { op: encodeText(op, app.cube.table.column("op").texts ?? []) });
}

function table(host, app, boxes) {
  const details = el("details", {}, el("summary", {}, `Table of ${counted(boxes.length, "box", "boxes")}`));
  host.append(details);
  details.addEventListener("toggle", () => {
    if (!details.open || details.dataset.made) return;
    details.dataset.made = "true";
    app.view = showTable(details, app, {
      label: "Boxes",
      columns: [
        { name: "track", text: true, minWidth: 100, grow: 1 },
        { name: "name", text: true, minWidth: 200 },
        { name: "op", text: true, grow: 2 },
        { name: "layer", text: true, grow: 2 },
        { name: "category", text: true, minWidth: 100, grow: 1 },
        { name: "count" }, { name: "start_ns" }, { name: "dur_ns" }, { name: "busy_ns" },
      ],
      rows: boxes,
      sort: "dur_ns",
      enter: (row) => enter(app, row),
      enterHelp: "click or Enter: its op",
    });
  });
}
