// One dial: a scale with a handle that is dragged, or moved by keys. It knows where it may stand and
// reports where it is moved to; its handlers do the rest.
import { el } from "../report/text.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 320;
const TOP = 16;
const WIDTH = 150;
const LEFT = 46;
const BAR = 26;
const PAGE = 10;
/** A limit that is more times what the dial reaches is not on its scale. */
const NEAR = 3;
/** Keys that come within this time, in ms, are one change. */
export const PAUSE = 600;
const KEYS = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: PAGE, PageDown: -PAGE, Home: -Infinity, End: Infinity };

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export class Dial {
  /**
   * @param {{id: string, title: string, column: {value: number[], lo: number[], hi: number[]},
   *   text: (value: number) => string, limit: number|null, limitText: string, binds: boolean,
   *   batches: number[], recorded: number[]}} about  `recorded` are places of the column
   * @param {{move: (at: number) => void, commit: () => void, restore: () => void}} handlers
   */
  constructor(about, handlers) {
    Object.assign(this, about);
    this.handlers = handlers;
    this.at = 0;
    this.drag = null;
    this.keys = null;
    const most = Math.max(...this.column.value.filter((value) => value !== null));
    this.most = this.limit !== null && this.limit < NEAR * most ? Math.max(1.05 * this.limit, 1.1 * most) : 1.1 * most;
    this.node = this.drawn();
  }

  drawn() {
    const hatch = svg("pattern", { id: `hatch-${this.id}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { width: 3, height: 7, class: "hatch" }));
    const track = svg("rect", { x: LEFT, y: TOP, width: BAR, height: HEIGHT, rx: 4, class: "track" });
    this.fill = svg("rect", { x: LEFT, width: BAR, class: "fill" });
    this.band = svg("rect", { x: LEFT - 8, width: BAR + 16, rx: 2 });
    this.knob = svg("rect", { x: LEFT - 14, width: BAR + 28, height: 14, rx: 7, class: "knob" });
    this.grip = svg("line", { x1: LEFT + 2, x2: LEFT + BAR - 2, class: "grip" });
    this.handle = svg("g", {
      role: "slider", tabindex: 0, "aria-orientation": "vertical", "aria-label": this.title,
      "aria-valuemin": this.batches[0], "aria-valuemax": this.batches.at(-1), class: "handle", id: `dial-${this.id}`,
    }, this.knob, this.grip);
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 2 * TOP}`, width: WIDTH, height: HEIGHT + 2 * TOP, class: "dial" },
      svg("defs", {}, hatch), track, ...this.limits(), this.fill, ...this.ticks(), this.band, this.handle);
    this.output = el("output", { for: `dial-${this.id}`, class: "reading" });
    this.range = el("span", { class: "range" });
    this.listen();
    return el("div", { class: "dial-box" }, el("h2", {}, this.title), this.picture, this.output, this.range);
  }

  y(value) {
    return TOP + HEIGHT * (1 - Math.min(1, Math.max(0, value / this.most)));
  }

  limits() {
    if (this.limit === null || this.limit > this.most) return [];
    const y = this.y(this.limit);
    const title = svg("title");
    title.textContent = this.limitText;
    const line = svg("line", { x1: LEFT - 12, x2: LEFT + BAR + 12, y1: y, y2: y, class: this.binds ? "limit binds" : "limit" }, title);
    return this.binds ? [svg("rect", { x: LEFT, y: TOP, width: BAR, height: y - TOP, class: "over" }), line] : [line];
  }

  /** Where recordings are: short lines at the right. */
  ticks() {
    return this.recorded.filter((at) => this.column.value[at] !== null).map((at) => {
      const y = this.y(this.column.value[at]);
      return svg("line", { x1: LEFT + BAR, x2: LEFT + BAR + 10, y1: y, y2: y, class: "tick" });
    });
  }

  /** Stand at a place of the column. */
  show(at, status, words) {
    this.at = at;
    const [value, lo, hi] = ["value", "lo", "hi"].map((name) => this.column[name][at]);
    const known = value !== null;
    const y = this.y(known ? value : this.most);
    this.fill.setAttribute("y", y);
    this.fill.setAttribute("height", TOP + HEIGHT - y);
    this.knob.setAttribute("y", y - 7);
    this.grip.setAttribute("y1", y);
    this.grip.setAttribute("y2", y);
    const ends = known ? [this.y(hi), this.y(lo)] : [y, y];
    this.band.setAttribute("y", ends[0]);
    this.band.setAttribute("height", Math.max(2, ends[1] - ends[0]));
    this.band.setAttribute("class", `band ${status}`);
    this.band.setAttribute("fill", status === "extrapolated" ? `url(#hatch-${this.id})` : "currentColor");
    this.output.textContent = known ? this.text(value) : "not known";
    this.range.textContent = known && lo < hi ? `${this.text(lo)} to ${this.text(hi)}` : "";
    this.handle.setAttribute("aria-valuenow", this.batches[at]);
    this.handle.setAttribute("aria-valuetext", `${words}: ${this.output.textContent}${this.range.textContent && `, from ${this.range.textContent}`}`);
  }

  /** Whether it may be moved. */
  allow(may) {
    this.may = may;
    this.handle.setAttribute("aria-readonly", String(!may));
    this.picture.classList.toggle("fixed", !may);
    if (!may) this.cancel();
  }

  listen() {
    const node = this.picture;
    node.addEventListener("pointerdown", (event) => this.begin(event));
    node.addEventListener("pointermove", (event) => this.moved(event));
    node.addEventListener("pointerup", () => this.dropped());
    // A lost pointer ends the drag without a change.
    node.addEventListener("pointercancel", () => this.cancel());
    node.addEventListener("lostpointercapture", () => this.cancel());
    this.handle.addEventListener("keydown", (event) => this.key(event));
    this.handle.addEventListener("blur", () => this.settle());
  }

  begin(event) {
    if (!this.may || event.button !== 0 || !event.isPrimary) return;
    event.preventDefault();
    this.settle();
    this.handle.focus({ preventScroll: true });
    this.picture.setPointerCapture(event.pointerId);
    const on = this.handle.contains(event.target);
    this.drag = { off: on ? this.valueAt(event) - (this.column.value[this.at] ?? this.most) : 0, moved: false };
    if (!on) this.moved(event);
  }

  valueAt(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.picture.getScreenCTM().inverse());
    return this.most * (1 - (point.y - TOP) / HEIGHT);
  }

  moved(event) {
    if (!this.drag) return;
    this.drag.moved = true;
    this.handlers.move(this.nearest(this.valueAt(event) - this.drag.off));
  }

  /** The place whose value is nearest; of several the one nearest to where it stands. */
  nearest(wanted) {
    let best = this.at;
    let least = Infinity;
    this.column.value.forEach((value, at) => {
      if (value === null) return;
      const away = Math.abs(value - wanted);
      if (away < least || (away === least && Math.abs(at - this.at) < Math.abs(best - this.at))) [best, least] = [at, away];
    });
    return best;
  }

  dropped() {
    if (!this.drag) return;
    const { moved } = this.drag;
    this.drag = null;
    if (moved) this.handlers.commit();
  }

  /** End what was begun and put back what was. */
  cancel() {
    const begun = this.drag !== null || this.keys !== null;
    this.drag = null;
    clearTimeout(this.keys);
    this.keys = null;
    if (begun) this.handlers.restore();
  }

  key(event) {
    if (event.key === "Escape") {
      this.cancel();
      return;
    }
    if (event.key === "Enter") {
      this.settle();
      return;
    }
    const by = KEYS[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (!this.may || this.drag) return;
    clearTimeout(this.keys);
    this.keys = setTimeout(() => this.settle(), PAUSE);
    this.handlers.move(Math.max(0, Math.min(this.column.value.length - 1, this.at + by)));
  }

  /** Keys that were pressed count now. */
  settle() {
    if (this.keys === null) return;
    clearTimeout(this.keys);
    this.keys = null;
    this.handlers.commit();
  }
}
