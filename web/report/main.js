// The page of `pyprof2 report`: reads the document that the file carries, and shows it.
import "./style.css";
import { Cube, chosenRows } from "./cube.js";
import { readDocument, Table } from "./document.js";
import { PAGES } from "./tab_order.js";
import { selectionBar } from "./selection.js";
import { SELECTION, State } from "./state.js";
import { el, multiline, shown } from "./text.js";
import { startTheme, themeButton } from "./theme.js";

const CUBE_NAMES = SELECTION.filter((name) => name !== "cause");

/** The steps that the sums do not keep apart. */
const OTHERS = "(others)";

/** The input of pages: the document, the state, and the selected rows. */
class App {
  constructor(doc) {
    this.doc = doc;
    this.cube = new Cube(doc);
    this.state = new State();
    this.roofs = new Table(doc.roofline?.signatures);
    this.leaving = [];
    this.tables = new Map();
    this.helps = new Map((doc.columns ?? []).map(({ name, help }) => [name, help]));
    const pages = PAGES.filter((page) => !page.available || page.available(doc));
    // Who compares two recordings asks for the difference first.
    const first = pages.filter(({ id }) => id === "compare");
    this.pages = [...first, ...pages.filter((page) => !first.includes(page))];
  }

  /** A table of the document by its name. */
  table(name) {
    if (!this.tables.has(name)) this.tables.set(name, new Table(this.doc[name]));
    return this.tables.get(name);
  }

  /** The rows of the sums that are selected. */
  rows() {
    return chosenRows(this.cube.table, this.state.selection());
  }

  /** The rows of another table that are selected, by these names of the selection. */
  chosen(name, by) {
    return chosenRows(this.table(name), this.state.selection().filter(([key]) => by.includes(key)));
  }

  values(name) {
    return this.cube.table.distinct(name);
  }

  help(name) {
    return this.helps.get(name) ?? null;
  }

  announce(text) {
    document.getElementById("status").textContent = text;
  }

  /** Run this before another page is shown. */
  onLeave(run) {
    this.leaving.push(run);
  }

  leave() {
    for (const run of this.leaving.splice(0)) run();
    this.view = null;
  }
}

function frame(app) {
  const { meta } = app.doc;
  document.title = `${shown(meta.name)} \u2013 pyprof2 report`;
  const panel = el("div", { id: "panel", role: "tabpanel", tabindex: "-1" });
  const skip = el("a", { href: "#panel", class: "skip", click: (event) => skipTo(event, panel) }, "Skip to the page");
  const head = el("header", {}, el("h1", {}, shown(meta.name)), el("span", { class: "made" }, `pyprof2 ${meta.version}`), themeButton());
  const status = el("div", { id: "status", role: "status", "aria-live": "polite" });
  document.getElementById("app").append(skip, head, ...failures(app), tabs(app), selectionBar(app), el("main", {}, panel), status);
  return panel;
}

/** The sections that could not be made: an empty table would say that nothing is there. */
function failures({ doc }) {
  return Object.entries(doc.failed ?? {}).map(([name, why]) =>
    el("p", { class: "unused", role: "alert" }, multiline(`The section ${name} is missing: ${why}`)));
}

/** The fragment is the state of the page: the link may not change it. */
function skipTo(event, panel) {
  event.preventDefault();
  panel.focus();
}

function tabs(app) {
  const list = el("div", { role: "tablist", "aria-label": "Pages", class: "tabs" });
  const nodes = app.pages.map((page) =>
    el("button", { type: "button", role: "tab", id: `tab-${page.id}`, "aria-controls": "panel", click: () => app.state.open(page.id) }, page.title));
  list.append(...nodes);
  list.addEventListener("keydown", (event) => moveTab(event, nodes));
  return el("nav", { "aria-label": "Pages" }, list);
}

function moveTab(event, nodes) {
  const at = nodes.indexOf(event.target);
  const last = nodes.length - 1;
  const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at === 0 ? last : at - 1, Home: 0, End: last }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  nodes[to].focus();
  nodes[to].click();
}

function show(app, panel) {
  app.leave();
  const page = app.pages.find(({ id }) => id === app.state.page) ?? app.pages[0];
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const chosen = tab.id === `tab-${page.id}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  panel.setAttribute("aria-labelledby", `tab-${page.id}`);
  panel.replaceChildren();
  panel.dataset.page = page.id;
  page.render(panel, app);
  sayUnused(app, page, panel);
  sayFolded(app, page, panel);
}

/** Where the sums of a step are not kept apart, that nothing is shown does not mean that nothing ran. */
function sayFolded(app, { uses }, panel) {
  const step = app.state.get("step");
  const steps = app.values("step").map(String);
  if (uses || step === null || steps.includes(step) || !steps.includes(OTHERS)) return;
  const show = el("button", { type: "button", class: "link", click: () => app.state.go({ step: OTHERS }) }, "Show those");
  panel.querySelector("h2").after(el("p", { class: "unused" }, `Step ${shown(step)} is not kept apart in tables of ops and kernels: it is among ${OTHERS}. `, show));
}

/** The parts of the selection that make no difference to the page. */
function sayUnused(app, { uses = CUBE_NAMES }, panel) {
  const unused = app.state.selection().map(([name]) => name).filter((name) => !uses.includes(name));
  if (!unused.length) return;
  const hint = el("p", { class: "unused" }, `This page does not depend on the ${unused.join(" and the ")} that is selected.`);
  panel.querySelector("h2").after(hint);
}

async function start() {
  startTheme();
  const app = new App(await readDocument());
  window.pyprof2 = { state: app.state };
  const panel = frame(app);
  app.state.addEventListener("change", () => show(app, panel));
  show(app, panel);
  performance.mark("ready");
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  document.body.append(el("p", { role: "alert", class: "empty" }, "This report cannot be shown: ", multiline(String(error))));
  throw error;
});
