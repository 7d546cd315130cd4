// The picture of roofs: two logarithmic axes, a line for each peak, a dot for each signature.
import { textWidth, tip } from "../chart.js";
import { fitted } from "../names.js";
import { el, shown, svg } from "../text.js";
import { byteUnit, counted, decade, flopUnit, percent, quantity, rate, time } from "../units.js";

const WIDE = 800;
const HEIGHT = 460;
const FONT = "11px system-ui, sans-serif";
const LINE = 15;
const EDGE = { top: 14, bottom: 52, left: 58 };
const DASHES = [null, "6 4", "2 3"];
/** Why a dot is above its roof, in a word, by what its flag begins with or names. */
const REASONS = [[/Winograd/, "Winograd"], [/Fourier/, "Fourier"], [/^l2:/, "L2 cache"], [/^bytes:/, "caches"]];

/** Draw the dots and the roofs of the devices; `explain` is called with the dot that is clicked. */
export function drawRoofs(host, app, dots, devices, explain) {
  const box = el("div", { class: "roofs" });
  host.append(box);
  const bubble = el("div", { class: "bubble", hidden: true });
  const picture = new Picture(dots, devices, explain, bubble);
  const paint = () => box.replaceChildren(...picture.nodes(box.clientWidth), bubble);
  const watch = new ResizeObserver(paint);
  watch.observe(box);
  paint();
  app.onLeave(() => watch.disconnect());
}

class Picture {
  constructor(dots, devices, explain, bubble) {
    Object.assign(this, { dots, devices, explain, bubble });
    this.lines = devices.flatMap((device, place) => merged(device, devices.length > 1).map((peak) => ({ ...peak, device, dash: DASHES[place % 3] })));
    const powers = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)) - 1e-9)];
    this.x = powers([...dots.map(({ intensity }) => intensity), ...this.lines.map(({ peak, device }) => (1.5 * peak) / device.bandwidth)]);
    this.y = powers([...dots.map(({ tflops }) => tflops * 1e12), ...this.lines.map(({ peak }) => peak)]);
  }

  nodes(width) {
    const wide = width >= WIDE;
    const names = this.lines.map(({ name }) => textWidth(name, FONT));
    const right = wide ? 34 + Math.min(width / 4, Math.max(0, ...names)) : 30;
    this.plot = { left: EDGE.left, right: Math.max(EDGE.left + 60, width - right), top: EDGE.top, bottom: HEIGHT - EDGE.bottom };
    this.wide = wide;
    const label = `Roofline of ${counted(this.dots.length, "signature")}; the table below has the same numbers`;
    const picture = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label },
      ...this.axes(), ...this.roofs(width), ...this.points());
    if (wide || !this.lines.length) return [picture];
    const items = this.placed.map(({ name }, index) => el("li", {}, el("b", {}, letter(index)), ` ${name}`));
    return [picture, el("ul", { class: "roof-names" }, ...items)];
  }

  at(intensity, flops) {
    const { left, right, top, bottom } = this.plot;
    const part = (value, [from, to]) => (Math.log10(value) - from) / Math.max(1, to - from);
    return [left + part(intensity, this.x) * (right - left), bottom - part(flops, this.y) * (bottom - top)];
  }

  axes() {
    const { left, right, top, bottom } = this.plot;
    const every = ([from, to], pixels, least) => Math.max(1, Math.ceil(least / (pixels / Math.max(1, to - from))));
    const powers = ([from, to], step) => Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => from + n * step);
    const grid = (x1, y1, x2, y2) => svg("line", { class: "grid", x1, y1, x2, y2 });
    const across = powers(this.x, every(this.x, right - left, 44)).flatMap((power) => {
      const [x] = this.at(10 ** power, 1);
      return [grid(x, top, x, bottom), svg("text", { class: "tick", x, y: bottom + 21, "text-anchor": "middle" }, decade(power))];
    });
    const up = powers(this.y, every(this.y, bottom - top, 20)).flatMap((power) => {
      const [, y] = this.at(1, 10 ** power);
      return [grid(left, y, right, y), svg("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, decade(power))];
    });
    const middle = (top + bottom) / 2;
    return [
      ...across, ...up,
      svg("text", { class: "axis", x: (left + right) / 2, y: bottom + 42, "text-anchor": "middle" }, "FLOP per byte"),
      svg("text", { class: "axis", x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "FLOP/s"),
    ];
  }

  /** The lines, and their names at the right, none upon another. */
  roofs(width) {
    const { right, top, bottom } = this.plot;
    const [most, least] = [this.at(1, 10 ** this.y[1])[1], bottom];
    const ends = this.lines.map((line) => ({ ...line, y: this.at(1, line.peak)[1] })).sort((a, b) => a.y - b.y);
    const wanted = apart(ends.map(({ y }) => y), top, bottom);
    this.placed = ends;
    return ends.flatMap(({ device, peak, matrix, dash, name, y }, index) => {
      const from = 10 ** this.x[0];
      const knee = peak / device.bandwidth;
      const corners = [[Math.min(from, knee), Math.min(from, knee) * device.bandwidth], [knee, peak], [10 ** this.x[1], peak]].map(([x, rise]) => this.at(x, rise));
      const points = clipped(corners, this.plot.left, least, most).map((point) => point.join(",")).join(" ");
      const words = this.wide ? fitted(name, width - right - 20, (text) => textWidth(text, FONT)) : letter(index);
      return [
        svg("polyline", { class: matrix ? "roof-line matrix" : "roof-line", points, "stroke-dasharray": dash }),
        svg("polyline", { class: "leader", points: `${right},${y} ${right + 6},${wanted[index]} ${right + 12},${wanted[index]}` }),
        svg("text", { class: "roof-name", x: right + 15, y: wanted[index] + 4 }, words, svg("title", {}, name)),
      ];
    });
  }

  points() {
    const most = this.dots[0].time_ns;
    const circles = this.dots.map((dot) => {
      const [x, y] = this.at(dot.intensity, dot.tflops * 1e12);
      const r = 2.5 + 15 * Math.sqrt(dot.time_ns / most);
      const node = svg("circle", { class: `dot${dot.bound === "compute" ? " matrix" : ""}${dot.flag ? " above" : ""}`, cx: x, cy: y, r });
      node.addEventListener("click", () => this.explain(dot));
      node.addEventListener("mouseenter", () => this.show(dot, x, y));
      node.addEventListener("mouseleave", () => (this.bubble.hidden = true));
      return { node, dot, x, y, r };
    });
    return [...circles.map(({ node }) => node), ...this.reasons(circles)];
  }

  /** The reasons, where there is room: those of the largest dots first. */
  reasons(circles) {
    const taken = [];
    const found = [];
    const { left, right, top, bottom } = this.plot;
    for (const { dot, x, y, r } of circles.filter(({ dot: each }) => each.flag)) {
      const words = reasonOf(dot);
      const width = textWidth(words, FONT);
      const places = [[x - width / 2, y - r - 4], [x + r + 3, y + 4], [x - r - width - 3, y + 4], [x - width / 2, y + r + 12]];
      const room = ([px, py]) => px >= left && px + width <= right && py - 11 >= top && py <= bottom
        && taken.every(([tx, ty, tw]) => px > tx + tw + 2 || px + width + 2 < tx || Math.abs(py - ty) >= LINE);
      const place = places.find(room);
      if (!place) continue;
      taken.push([...place, width]);
      found.push(svg("text", { class: "reason", x: place[0], y: place[1] }, words));
    }
    return found;
  }

  show(dot, x, y) {
    this.bubble.replaceChildren(dotTip(dot));
    this.bubble.hidden = false;
    const { width } = this.bubble.getBoundingClientRect();
    const room = this.bubble.parentNode.clientWidth;
    this.bubble.style.left = `${Math.max(0, Math.min(x + 12, room - width))}px`;
    this.bubble.style.top = `${y + 14}px`;
  }
}

const letter = (index) => String.fromCharCode(65 + (index % 26)).repeat(1 + Math.floor(index / 26));

/** Heights at least a line apart, as near as can be to those that are asked for, which rise. */
function apart(heights, top, bottom) {
  const found = [];
  for (const height of heights) found.push(Math.max(height, found.length ? found[found.length - 1] + LINE : top));
  for (let at = found.length - 1, most = bottom; at >= 0 && found[at] > most; at -= 1, most -= LINE) found[at] = most;
  return found;
}

/** A line that rises and then is level, from the left edge and the bottom on. */
function clipped([first, knee, end], left, bottom) {
  const cut = ([x, y], [toX, toY]) => {
    if (x < left && toX > x) [x, y] = [left, y + ((left - x) / (toX - x)) * (toY - y)];
    if (y > bottom && toY < y) [x, y] = [x + ((y - bottom) / (y - toY)) * (toX - x), bottom];
    return [x, y];
  };
  return knee[0] <= left ? [[left, knee[1]], end] : [cut(first, knee), knee, end];
}

/** Peaks of the same height as one, with all their names. */
function merged({ peaks, name: device }, isOneOfSeveral) {
  const found = new Map();
  for (const { dtype, flops_per_s: peak, matrix } of peaks) {
    const same = found.get(peak) ?? { peak, matrix: false, names: [] };
    same.names.push(`${shown(dtype)}${matrix ? " matrix" : ""}`);
    found.set(peak, { ...same, matrix: same.matrix || matrix });
  }
  const of = isOneOfSeveral ? ` (${shown(device)})` : "";
  return [...found.values()].map(({ peak, matrix, names }) => ({ peak, matrix, name: `${names.join(", ")}: ${quantity(peak, flopUnit)}/s${of}` }));
}

/** A word or two of a flag. */
function reasonOf({ flag, signature }) {
  const known = REASONS.find(([pattern]) => pattern.test(flag));
  if (known) return known[1];
  return / f32\b/.test(signature) ? "TF32 or fewer FLOPs" : "fewer FLOPs or a faster unit";
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
