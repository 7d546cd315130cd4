// The bar above every page: what is chosen, and the way that led there.
import { ownersOf } from "./cube.js";
import { decodeText, encodeText, GLOBAL, SELECTION } from "./state.js";
import { el, shown, titled } from "./text.js";

const WORDS = {
  rank: "rank", step: "step", direction: "direction", layer: "layer", category: "category",
  kernel: "kernel", op: "op", signature: "signature", range: "range", source: "line", cause: "cause",
};
const MOST_LAYERS = 2000;

export function selectionBar(app) {
  const bar = el("form", { class: "selection", "aria-label": "Selection", submit: (e) => e.preventDefault() });
  const draw = () => bar.replaceChildren(...parts(app));
  app.state.addEventListener("change", draw);
  draw();
  return bar;
}

function parts(app) {
  const { cube } = app;
  const lists = GLOBAL.filter((name) => name !== "layer").map((name) => picker(app, name));
  const layers = cube.table.column("layer").texts ?? [];
  return [...lists, layers.length ? layerBox(app, layers) : null, crumbs(app)].filter(Boolean);
}

/** A list of the values of a column. */
function picker(app, name) {
  const values = app.values(name);
  if (values.length < 2 && !app.state.get(name)) return null;
  const chosen = app.state.get(name) ?? "";
  const options = values.map((value) =>
    el("option", { value, selected: String(value) === chosen }, shown(value)));
  const list = el(
    "select",
    { id: `pick-${name}`, change: () => app.state.go({ [name]: list.value || null }) },
    el("option", { value: "" }, "all"),
    ...options,
  );
  return el("label", { for: `pick-${name}` }, WORDS[name], list);
}

function layerBox(app, layers) {
  const chosen = app.state.get("layer");
  const box = el("input", {
    id: "pick-layer",
    list: "layers",
    placeholder: "all",
    autocomplete: "off",
    change: () => app.state.go({ layer: box.value ? encodeText(box.value, layers) : null }),
  });
  box.value = chosen ? decodeText(chosen, layers).text : "";
  const options = prefixes(layers).map((path) => el("option", { value: path }));
  return el("label", { for: "pick-layer" }, "layer", box, el("datalist", { id: "layers" }, ...options));
}

/** All paths and those above them. */
function prefixes(paths) {
  const found = new Set();
  for (const path of paths.flatMap(ownersOf)) {
    if (path.length > 300) continue;
    const names = path.split(".");
    for (let depth = 1; depth <= names.length; depth += 1) found.add(names.slice(0, depth).join("."));
    if (found.size > MOST_LAYERS) break;
  }
  return [...found].sort().slice(0, MOST_LAYERS);
}

/** The way down: each part leads back to where it was the last. */
function crumbs(app) {
  const chosen = [...app.state.values].filter(([name]) => SELECTION.includes(name));
  if (!chosen.length) return null;
  const all = el("button", { type: "button", click: () => app.state.go(without(SELECTION)) }, "Everything");
  const items = chosen.map(([name, value], place) => crumb(app, chosen, name, value, place));
  return el("nav", { class: "crumbs", "aria-label": "Way down" }, el("ol", {}, el("li", {}, all), ...items));
}

function without(names) {
  return Object.fromEntries(names.map((name) => [name, null]));
}

function crumb(app, chosen, name, value, place) {
  const { text } = decoded(app, name, value);
  const later = chosen.slice(place + 1).map(([each]) => each);
  const words = `${WORDS[name]} ${shown(text)}`;
  const back = el("button", {
    type: "button",
    title: `Back to ${WORDS[name]} ${titled(text)}`,
    "aria-current": later.length ? null : "true",
    click: () => app.state.go(without(later)),
  }, words);
  const off = el("button", {
    type: "button",
    class: "off",
    "aria-label": `Without ${words}`,
    click: () => app.state.go({ [name]: null }),
  }, "\u00d7");
  return el("li", {}, back, off);
}

/** The choice by a name: the text, and whether names below it are excluded. */
export function decoded(app, name, value) {
  return decodeText(value, app.cube.table.column(name).texts ?? []);
}
