// The reader's own code, each line with the time of what ran for it and the idle time it caused.
import { ownersOf } from "../cube.js";
import { encodeText } from "../state.js";
import { clean, el, shown } from "../text.js";
import { rate, timeUnit } from "../units.js";
import { choice } from "./breakdown.js";

export const source = { id: "source", title: "Source", render };

const LONGEST_LINE = 400;

function render(host, app) {
  host.append(el("h2", {}, "Source"));
  const files = app.doc.sources ?? [];
  if (!files.length) {
    host.append(el("p", { class: "empty" }, "No source is embedded: no line of your code was recorded, its files are not below the folder of your code (--source-root), or the report was made with --no-source. The page Lines has the time of each line."));
    return;
  }
  const heat = heatOf(app);
  const sum = (file) => [...heat].filter(([key]) => pathOf(key) === file.path).reduce((all, [, { time_ns }]) => all + time_ns, 0);
  const sorted = [...files].sort((a, b) => sum(b) - sum(a));
  const asked = app.state.get("file");
  const file = sorted.find(({ path }) => path === asked) ?? sorted[0];
  host.append(el("div", { class: "toolbar" },
    choice("file", file.path, sorted.map(({ path }) => [path, shown(path)]), (path) => app.state.go({ file: path }))));
  host.append(el("p", { class: "hint" }, "Time of what ran for a line, and idle time whose cause is in it, of the selection; shared: that of kernels which work for other lines too. A line opens its ops."));
  const list = listing(app, file, heat);
  host.append(list);
  showHottest(list);
}

/** Scroll to the line with the most time. */
function showHottest(list) {
  const heatOfRow = ({ dataset }) => Math.max(dataset.time, dataset.idle);
  const rows = [...list.querySelectorAll("tbody tr")];
  const hottest = rows.reduce((most, row) => (heatOfRow(row) > heatOfRow(most) ? row : most), rows[0]);
  list.scrollTop = Math.max(0, hottest.offsetTop - list.clientHeight / 2);
}

const pathOf = (key) => key.slice(0, key.lastIndexOf(":"));

/** Time and idle time of each line of the selection, by `path:line`. */
function heatOf(app) {
  const heat = new Map();
  collect(heat, app.cube.table, app.rows(), "time_ns");
  collect(heat, app.table("idle"), app.chosen("idle", ["rank", "step", "layer", "op", "source"]), "idle_ns");
  return heat;
}

function collect(heat, table, rows, name) {
  for (const row of rows) {
    const keys = ownersOf(table.at("source", row));
    for (const key of keys) {
      if (key === null) continue;
      if (!heat.has(key)) heat.set(key, { time_ns: 0, idle_ns: 0, shared_ns: 0 });
      heat.get(key)[keys.length > 1 ? "shared_ns" : name] += table.at("time_ns", row);
    }
  }
}

function listing(app, file, heat) {
  const most = Math.max(1, ...[...heat.values()].map(({ time_ns, idle_ns }) => Math.max(time_ns, idle_ns)));
  const unit = timeUnit(most);
  const form = (ns) => rate(ns / unit.size);
  const several = [...heat.values()].some(({ shared_ns }) => shared_ns);
  const body = file.lines.map((line, index) => lineRow(app, file, line, index + 1, heat, most, form, several));
  const shared = several ? [`shared ${unit.label}`] : [];
  const head = el("tr", {}, ...["line", `time ${unit.label}`, ...shared, `idle ${unit.label}`, "code"].map((name) => el("th", { scope: "col" }, name)));
  const table = el("table", { class: "source" }, el("caption", {}, shown(file.path)), el("thead", {}, head), el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Source of ${shown(file.path)}` }, table);
}

function lineRow(app, file, line, number, heat, most, form, several) {
  const key = `${file.path}:${number}`;
  const { time_ns, idle_ns, shared_ns } = heat.get(key) ?? { time_ns: 0, idle_ns: 0, shared_ns: 0 };
  const cell = (value, tone) => {
    const node = el("td", { class: "number heat" }, value ? form(value) : "");
    if (value) node.style.setProperty("--share", `${(100 * value) / most}%`);
    node.style.setProperty("--tone", `var(${tone})`);
    return node;
  };
  const open = () => app.state.open("ops", { source: encodeText(key, app.cube.table.column("source").texts ?? []) });
  const label = time_ns || shared_ns ? el("button", { type: "button", class: "link", click: open, "aria-label": `Ops of line ${number}` }, String(number)) : String(number);
  return el("tr", { id: `line-${number}`, "data-time": time_ns, "data-idle": idle_ns },
    el("th", { scope: "row", class: "number" }, label), cell(time_ns, "--compute"), several ? cell(shared_ns, "--compute") : null, cell(idle_ns, "--idle-1"),
    el("td", {}, el("code", {}, clean(line.slice(0, LONGEST_LINE)))));
}
