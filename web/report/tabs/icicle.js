// Layers within layers, each as wide as its time, its FLOPs or its bytes.
import flamegraph from "d3-flame-graph";
import { select } from "d3-selection";
import { textWidth } from "../chart.js";
import { ownersOf, SEPARATORS } from "../cube.js";
import { measureGroups } from "../measures.js";
import { fitted } from "../names.js";
import { encodeText } from "../state.js";
import { el, NONE, shown } from "../text.js";
import { byteUnit, flopUnit, percent, quantity, time } from "../units.js";
import { choice } from "./breakdown.js";
import { KINDS, legend, toneOfCategory } from "./parts.js";

export const icicle = { id: "icicle", title: "Icicle", render };

const MEASURES = {
  time: { column: "time_ns", form: time },
  flops: { column: "flops", form: (value) => quantity(value, flopUnit) },
  bytes: { column: "bytes", form: (value) => quantity(value, byteUnit) },
};
const TREES = { layer: "layers", range: "ranges", op: "ops and kernels" };

function render(host, app) {
  host.append(el("h2", {}, "Icicle"));
  const trees = Object.keys(TREES).filter((name) => hasTexts(app, name));
  const tree = trees.includes(app.state.get("tree")) ? app.state.get("tree") : trees[0];
  const measure = app.state.get("measure") in MEASURES ? app.state.get("measure") : "time";
  const details = el("p", { class: "details", "aria-live": "polite" });
  const openButton = el("button", { type: "button", class: "tool", disabled: true }, "Select this");
  host.append(el("div", { class: "toolbar" },
    choice("of", tree, trees.map((name) => [name, TREES[name]]), (value) => app.state.go({ tree: value })),
    choice("by", measure, Object.keys(MEASURES).map((name) => [name, name]), (value) => app.state.go({ measure: value })),
    openButton));
  if (!tree) {
    host.append(el("p", { class: "empty" }, "No layer, range or op was recorded."));
    return;
  }
  const root = treeOf(app, tree, MEASURES[measure]);
  if (!root.value) {
    host.append(el("p", { class: "empty" }, `Nothing of the selection has a known ${measure}.`));
    return;
  }
  host.append(el("p", { class: "hint" }, "A part has the colour of what takes most of its time:"), legend(KINDS.filter(([tone]) => hasTone(root, tone))));
  const words = (node) => `${shown(node.data.name)}: ${MEASURES[measure].form(node.value)} (${percent((100 * node.value) / root.value)})`;
  host.append(el("p", { class: "hint" }, "A click or Enter widens a part; the arrow keys go up, down and beside it."), details);
  new Graph(app, host, root, tree, words, details, openButton).draw();
}

const hasTone = (node, tone) => node.tone === tone || node.children.some((child) => hasTone(child, tone));

function hasTexts(app, name) {
  const column = app.cube.table.column(name);
  return column.ids?.some((id) => id >= 0) ?? false;
}

/** The tree of the selection's paths, with the sum of a measure at each. */
function treeOf(app, name, { column }) {
  const { cube } = app;
  const root = { name: "everything", path: null, value: 0, tones: new Map(), children: new Map() };
  const lists = new Map();
  for (const row of app.rows()) {
    const path = pathOf(cube.table, row, name);
    const key = path.join("\n");
    if (!lists.has(key)) lists.set(key, { path, rows: [], tones: new Map() });
    const list = lists.get(key);
    list.rows.push(row);
    tally(list.tones, toneOfCategory(cube.table.at("category", row)), cube.table.at("time_ns", row));
  }
  const all = [...lists.values()];
  const values = measureGroups(cube, cube.groupOf(all.map(({ rows }) => rows)), all.length, 1);
  all.forEach(({ path, tones }, index) => add(root, path, values[index][column] ?? 0, tones, SEPARATORS[name]));
  return settled(root);
}

function pathOf(table, row, name) {
  const value = table.at(name, row) ?? NONE;
  if (name === "op") return [value, (table.at("kernel", row) ?? NONE).replace(/^void /, "")];
  return ownersOf(value).length > 1 ? [value] : value.split(SEPARATORS[name]);
}

const tally = (tones, tone, time) => tones.set(tone, (tones.get(tone) ?? 0) + (time ?? 0));

function add(root, path, value, tones, separator) {
  let node = root;
  const count = () => {
    node.value += value;
    for (const [tone, time] of tones) tally(node.tones, tone, time);
  };
  count();
  for (let depth = 0; depth < path.length; depth += 1) {
    const name = path[depth];
    if (!node.children.has(name)) {
      const whole = separator ? path.slice(0, depth + 1).join(separator) : path[0];
      node.children.set(name, { name, path: whole, value: 0, tones: new Map(), children: new Map() });
    }
    node = node.children.get(name);
    count();
  }
}

/** Children as the graph takes them: a list, the largest first. */
function settled(node) {
  const children = [...node.children.values()].map(settled).filter(({ value }) => value > 0);
  const [[tone]] = [...node.tones].sort((a, b) => b[1] - a[1]);
  return { ...node, tone, children: children.sort((a, b) => b.value - a.value) };
}

class Graph {
  constructor(app, host, root, tree, words, details, openButton) {
    Object.assign(this, { app, root, tree, words, details, openButton });
    this.box = el("div", { class: "icicle", role: "group", "aria-label": `${TREES[tree]}, each as wide as its share` });
    host.append(this.box);
  }

  draw() {
    this.width = Math.max(280, this.box.clientWidth);
    const graph = flamegraph()
      .width(this.width)
      .cellHeight(20)
      .minFrameSize(1)
      .transitionDuration(0)
      .inverted(true)
      .selfValue(false)
      .sort((a, b) => b.data.value - a.data.value)
      .setColorMapper((node, original) => (node.highlight ? original : toneOf(node)))
      .setLabelHandler((node) => this.words(node))
      .getName((node) => this.label(node))
      .onClick((node) => this.chosen(node));
    select(this.box).datum(this.root).call(graph);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("focusin", ({ target }) => target.__data__?.data && this.describe(target.__data__));
    this.box.addEventListener("mouseover", ({ target }) => {
      const node = target.closest("g")?.__data__;
      if (node) this.describe(node);
    });
    this.dress();
    this.app.onLeave(() => graph.destroy());
    this.openButton.addEventListener("click", () => this.select());
  }

  /** The label of a frame, cut to its width. */
  label(node) {
    return fitted(node.data.name, (node.x1 - node.x0) * this.width - 18, (text) => textWidth(text));
  }

  /** The whole, and what is to be read of it: who says what they see finds the frame. */
  spoken(node) {
    const label = this.label(node);
    return label.includes("\u2026") ? `${this.words(node)}; ${label}` : this.words(node);
  }

  frames() {
    return [...this.box.querySelectorAll("g.frame")];
  }

  /** One part can be reached by Tab, the others by the arrow keys from there. */
  dress() {
    const frames = this.frames();
    for (const frame of frames) {
      frame.setAttribute("role", "button");
      frame.setAttribute("aria-label", this.spoken(frame.__data__));
      frame.setAttribute("tabindex", "-1");
    }
    const chosen = frames.find((frame) => frame.__data__ === this.node) ?? frames.find((frame) => !frame.__data__.parent);
    chosen?.setAttribute("tabindex", "0");
    return chosen;
  }

  describe(node) {
    this.details.textContent = this.words(node);
  }

  chosen(node) {
    this.node = node;
    this.describe(node);
    this.openButton.disabled = node.data.path === null || node.data.path === NONE;
    this.dress()?.focus();
  }

  select() {
    const { path } = this.node.data;
    const { texts } = this.app.cube.table.column(this.tree);
    const page = { layer: "ops", range: "ops", op: "kernels" }[this.tree];
    this.app.state.open(page, { [this.tree]: encodeText(path, texts) });
  }

  key(event) {
    const node = event.target.__data__;
    if (!node?.data) return;
    const beside = (step) => node.parent?.children[node.parent.children.indexOf(node) + step];
    const next = { ArrowUp: node.parent, ArrowDown: node.children?.[0], ArrowLeft: beside(-1), ArrowRight: beside(1) }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    } else if (next) {
      event.preventDefault();
      const frame = this.frames().find((each) => each.__data__ === next);
      event.target.setAttribute("tabindex", "-1");
      frame?.setAttribute("tabindex", "0");
      frame?.focus();
    }
  }
}

/** The colour of what takes most of a part's time, light enough to read its name on. */
const toneOf = (node) => `color-mix(in srgb, var(${node.data.tone}) 40%, var(--page))`;
