// The median step, the slowest and the selected one: where in the network each stream was, what it
// did, why it did nothing, and what the host did meanwhile.
import { axis, base, draw, slider, textWidth, tip } from "../chart.js";
import { Column } from "../document.js";
import { fitted } from "../names.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, shown } from "../text.js";
import { color } from "../theme.js";
import { counted, percent, shortTime, time, timeScale } from "../units.js";
import { choice, placeOf } from "./breakdown.js";
import { paint } from "./painted.js";
import { KINDS, legend, toneOfCategory } from "./parts.js";

export const timeline = { id: "timeline", title: "Timeline", uses: ["rank", "step"], render };

const IDLE_TONES = { "host late": "--idle-0", "host waits for the device": "--warn", device: "--idle-2", recording: "--idle-4" };
const HOST = "--muted";
const LEGEND = [...KINDS, ...Object.entries(IDLE_TONES).map(([group, tone]) => [tone, `idle: ${group}`]), [HOST, "ops on the host"]];
const ORDER = ["only", "median", "slowest", "recording", "step"];
/** Kinds of tracks that say where the device was: pale as long as they are, filled by what was busy. */
const SPANS = ["step", "phase", "layer"];
const ROWS = 560;
const ROW = { least: 24, most: 72 };
const FONT = "11px system-ui, sans-serif";
const EDGE = { right: 16, top: 4, bottom: 72 };
const NARROW = 26;
const CLOSEST = 200;

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
  const boxes = boxesOf(window);
  const view = new View(app, window, boxes);
  host.append(el("div", { class: "toolbar" },
    choice("window", place, windows.map((each, index) => [index, title(each)]), (value) => app.state.go({ window: value, from: null, to: null })),
    ...view.buttons()));
  host.append(el("p", { class: "hint" }, hint(app, boxes)));
  host.append(legend(LEGEND.filter(([tone]) => boxes.some((box) => box._kind !== "step" && toneOf(box) === tone))));
  view.draw(host);
  table(host, app, boxes);
}

function hint(app, boxes) {
  const spans = boxes.some(({ _kind }) => SPANS.includes(_kind) && _kind !== "step") ? " Phases and layers are pale from first to last kernel, full where busy." : "";
  const merged = boxes.some(({ count, _kind }) => count > 1 && !SPANS.includes(_kind)) ? " Some boxes stay merged: pyprof2 export --perfetto writes all for ui.perfetto.dev." : "";
  const lanes = app.doc.meta.has_gpu ? "" : " No work of a GPU was recorded: a lane for each thread, with the ops that are in no other.";
  return `Zoom down to single kernels: buttons, the bar below, Ctrl and the wheel. A click: the op. What is narrower than a pixel is as high as its share of the pixel\u2019s time.${spans}${merged}${lanes}`;
}

function title({ why, step, rank, device, start_ns, end_ns }) {
  const place = device === null ? `rank ${rank}` : `rank ${rank}, device ${device}`;
  if (why === "recording") return `all of ${place}, ${shortTime(end_ns - start_ns)}`;
  return `${["step", "only"].includes(why) ? "" : `${why}: `}step ${step}, ${place}, ${shortTime(end_ns - start_ns)}`;
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

function toneOf({ _kind, category }) {
  if (_kind === "idle") return IDLE_TONES[category] ?? "--idle-5";
  if (_kind === "host" || _kind === "step") return HOST;
  return toneOfCategory(category);
}

/** A window, the part of it that is shown, and what is painted of that. */
class View {
  constructor(app, window, boxes) {
    Object.assign(this, { app, window, boxes });
    this.length = Math.max(1, window.end_ns - window.start_ns);
    const from = Number(app.state.get("from") ?? 0);
    const to = Number(app.state.get("to") ?? this.length);
    [this.from, this.to] = from >= 0 && to > from && to <= this.length ? [from, to] : [0, this.length];
    this.tracks = window.tracks.map(() => []);
    for (const box of boxes) this.tracks[box._track].push(box);
    this.row = Math.min(ROW.most, Math.max(ROW.least, Math.floor(ROWS / this.tracks.length)));
  }

  buttons() {
    const button = (words, label, run) => el("button", { type: "button", class: "tool", "aria-label": label, title: label, click: run }, words);
    const zoom = (factor, shift = 0) => () => {
      const middle = (this.from + this.to) / 2 + shift * (this.to - this.from);
      this.show(middle, Math.min(this.length, Math.max(CLOSEST, (this.to - this.from) * factor)));
    };
    return [
      button("+", "Zoom in", zoom(0.5)), button("\u2212", "Zoom out", zoom(2)),
      button("\u2190", "Earlier", zoom(1, -0.5)), button("\u2192", "Later", zoom(1, 0.5)),
      button("All", "All of the window", () => this.show(this.length / 2, this.length)),
    ];
  }

  /** Show a part of this length, about a middle. */
  show(middle, length) {
    const start = Math.max(0, Math.min(this.length - length, middle - length / 2));
    this.chart.dispatchAction({ type: "dataZoom", startValue: Math.round(start), endValue: Math.round(start + length) });
  }

  draw(host) {
    const box = el("div", { class: "chart" });
    box.style.height = `${EDGE.top + EDGE.bottom + this.row * this.tracks.length}px`;
    host.append(box);
    box.dataset.row = this.row;
    this.box = box;
    const words = `Timeline of ${title(this.window)}, ${counted(this.tracks.length, "track")}; the table below has the same boxes`;
    const { chart, dispose } = draw(box, words, () => this.option(box.clientWidth));
    this.chart = chart;
    chart.on("datazoom", () => this.zoomed());
    chart.on("click", ({ dataIndex }) => enter(this.app, this.rects[dataIndex].box));
    const watch = new ResizeObserver(() => box.clientWidth !== this.width && this.repaint(box.clientWidth));
    watch.observe(box);
    this.app.onLeave(() => watch.disconnect());
    this.app.onLeave(dispose);
  }

  zoomed() {
    const { startValue, endValue } = this.chart.getOption().dataZoom[0];
    [this.from, this.to] = [startValue, endValue];
    const all = startValue <= 0 && endValue >= this.length;
    this.app.state.note({ from: all ? null : Math.round(startValue), to: all ? null : Math.round(endValue) });
    this.repaint(this.chart.getWidth());
  }

  repaint(width) {
    if (width > 0) this.chart.setOption({ grid: this.grid(width), series: [this.series(width)] });
  }

  grid(width) {
    const names = this.window.tracks.map(({ name }) => textWidth(shown(name)));
    return { left: 12 + Math.min(width < 600 ? 72 : 150, Math.ceil(Math.max(...names))), ...EDGE };
  }

  option(width) {
    const { left } = this.grid(width);
    const unit = timeScale(this.to - this.from);
    const form = (value) => `${unit.form(value)} ${unit.label}`;
    const names = this.window.tracks.map(({ name }) => fitted(name, left - 12, (text) => textWidth(text)));
    return {
      ...base(),
      grid: this.grid(width),
      xAxis: axis({ type: "value", min: 0, max: this.length, axisLabel: { formatter: form } }),
      // Two tracks may have one short name.
      yAxis: axis({ type: "category", data: names.map((_, index) => index), inverse: true, axisTick: { show: false }, axisLabel: { interval: 0, formatter: (index) => names[index] } }),
      dataZoom: [
        { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, startValue: this.from, endValue: this.to, minValueSpan: Math.min(CLOSEST, this.length) },
        slider({ filterMode: "none", labelFormatter: form, startValue: this.from, endValue: this.to }),
      ],
      tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => boxTip(this.rects[dataIndex]) },
      series: [this.series(width)],
    };
  }

  series(width) {
    const { left, right } = this.grid(width);
    this.box.dataset.left = left;
    this.width = width;
    const pixels = Math.max(1, width - left - right);
    this.rects = this.tracks.flatMap((boxes, track) => {
      const own = paint(boxes, this.from, this.to, pixels, toneOf);
      const spans = SPANS.includes(boxes[0]?._kind);
      if (boxes[0]?._kind === "step") return pale(boxes, this.from, this.to, pixels, track, []);
      return spans ? pale(boxes, this.from, this.to, pixels, track, own) : own.map((rect) => ({ ...rect, track }));
    });
    const scale = (this.to - this.from) / pixels;
    return {
      id: "boxes", type: "custom", renderItem: (params, api) => this.rect(params, api), encode: { x: [1, 2], y: 0 }, progressive: 0,
      data: this.rects.map(({ track, x, end }) => [track, this.from + x * scale, this.from + end * scale]),
    };
  }

  /** A rectangle at whole pixels, and its name where there is room. */
  rect({ coordSys, dataIndex }, api) {
    const { track, x, end, low, high, tone, box, isPale, named } = this.rects[dataIndex];
    const [, middle] = api.coord([0, track]);
    const height = this.row - 4;
    const floor = Math.round(middle) + height / 2;
    const fill = color(tone);
    const shape = { x: coordSys.x + x, y: floor - high * height, width: end - x, height: (high - low) * height };
    const isSpan = SPANS.includes(box?._kind);
    const rect = { type: "rect", shape, style: { fill, opacity: isPale ? 0.25 : isSpan ? 0.4 : 1 } };
    if (!named || end - x < NARROW) return rect;
    const words = fitted(box.name, end - x - 6, (text) => textWidth(text, FONT));
    const ink = isSpan ? color("--text") : inkOn(fill);
    const label = { type: "text", silent: true, style: { text: words, font: FONT, fill: ink, x: shape.x + 3, y: floor - height / 2, verticalAlign: "middle" } };
    return { type: "group", children: [rect, label] };
  }
}

/** Spans: pale where they are, with the filled parts before them so that their names lie on top. */
function pale(boxes, from, to, pixels, track, own) {
  const place = (ns) => Math.max(0, Math.min(pixels, Math.round(((ns - from) * pixels) / (to - from))));
  const backs = [];
  for (const box of boxes) {
    const [x, end] = [place(box.start_ns), place(box.start_ns + box.dur_ns)];
    // A pixel between those that are one after another.
    if (end > x) backs.push({ x, end: end - x > 3 ? end - 1 : end, low: 0, high: 1, tone: toneOf(box), box, isPale: true, named: box.count === 1 || box._kind === "step", track });
  }
  return [...own.map((rect) => ({ ...rect, named: false, track })), ...backs];
}

/** Black or white, whichever is read on a colour. */
function inkOn(fill) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(fill.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#101418" : "#ffffff";
}

function boxTip({ box, count, share }) {
  const isOne = count === 1;
  const several = isOne ? null : `${counted(count, "box", "boxes")}, of which this is the longest`;
  return tip(box.name, [
    ["merged", several],
    ["of the pixel", isOne ? null : percent(100 * share)],
    ["start", time(box.start_ns)],
    ["time", time(box.dur_ns)],
    ["of it busy", box._kind !== "idle" && box.busy_ns < box.dur_ns ? time(box.busy_ns) : null],
    ["op", box.op],
    ["layer", box.layer],
    [box._kind === "idle" ? "group" : "category", box.category],
    ["activities", box.count > 1 ? box.count : null],
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
