// Many ranks: each step of each rank as a field, the darker the more.
import { axis, base, draw, tip } from "../chart.js";
import { showTable } from "../table.js";
import { el } from "../text.js";
import { color } from "../theme.js";
import { percent, time } from "../units.js";
import { choice } from "./breakdown.js";

export const ranks = { id: "ranks", title: "Ranks", uses: ["rank", "step"], available: ({ meta }) => meta.ranks.length > 1, render };

const MEASURES = {
  window: { words: "time of the step", value: ({ window_ns }) => window_ns, form: time },
  busy: { words: "busy time", value: ({ busy_ns }) => busy_ns, form: time },
  idle: { words: "idle time", value: ({ window_ns, busy_ns }) => window_ns - busy_ns, form: time },
  utilization: { words: "utilization", value: ({ utilization }) => utilization, form: (value) => percent(value) },
};

function render(host, app) {
  host.append(el("h2", {}, "Ranks"));
  const table = app.table("steps");
  const rows = table.records(app.chosen("steps", ["rank", "step"]));
  if (!rows.length) {
    host.append(el("p", { class: "empty" }, "No step is selected or recorded: of each device there is the whole recording."));
    recorded(host, app);
    return;
  }
  const name = app.state.get("measure") in MEASURES ? app.state.get("measure") : "window";
  host.append(el("div", { class: "toolbar" },
    choice("show", name, Object.entries(MEASURES).map(([key, { words }]) => [key, words]), (measure) => app.state.go({ measure }))));
  host.append(el("p", { class: "hint" }, "A click on a field or a row selects its rank and step on every page."));
  chart(host, app, rows, MEASURES[name]);
  list(host, app, rows);
}

/** The fields: a row for each rank and device, a column for each step. */
function chart(host, app, rows, measure) {
  const owners = [...new Set(rows.map(owner))];
  const steps = [...new Set(rows.map(({ step }) => String(step)))];
  const box = el("div", { class: "chart" });
  box.style.height = `${130 + Math.min(640, 28 * owners.length)}px`;
  host.append(box);
  const words = `${measure.words} of ${owners.length} ranks in ${steps.length} steps; the table below has the same numbers`;
  const { chart: drawn, dispose } = draw(box, words, () => option(rows, owners, steps, measure));
  drawn.on("click", ({ dataIndex }) => enter(app, rows[dataIndex]));
  app.onLeave(dispose);
}

const owner = ({ rank, device }) => `rank ${rank}, device ${device}`;

function option(rows, owners, steps, measure) {
  const known = rows.map(measure.value).filter((value) => value !== null);
  return {
    ...base(),
    grid: { left: 8, right: 16, top: 8, bottom: 64, containLabel: true },
    xAxis: axis({ type: "category", data: steps, splitArea: { show: false } }),
    yAxis: axis({ type: "category", data: owners, inverse: true }),
    visualMap: {
      min: Math.min(...known), max: Math.max(...known), orient: "horizontal", left: "center", bottom: 0,
      calculable: false, text: [measure.form(Math.max(...known)), measure.form(Math.min(...known))], textStyle: { color: color("--text") },
      inRange: { color: [color("--cold"), color("--hot")] },
    },
    tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => fieldTip(rows[dataIndex]) },
    series: [{
      type: "heatmap",
      data: rows.map((row) => [String(row.step), owner(row), measure.value(row)]),
      itemStyle: { borderColor: color("--page"), borderWidth: 1 },
    }],
  };
}

function fieldTip(row) {
  return tip(`${owner(row)}, step ${row.step}`, Object.values(MEASURES).map(({ words, value, form }) => [words, form(value(row))]));
}

function enter(app, { rank, step }) {
  app.state.open("overview", { rank, step });
}

function list(host, app, rows) {
  const numbers = ["rank", "device", "step", "window_ns", "busy_ns", "utilization", "mfu"];
  app.view = showTable(host, app, {
    label: "Steps of all ranks",
    columns: [...numbers.map((name) => ({ name, help: app.help(name) })), { name: "outlier" }, { name: "note", text: true }],
    rows: rows.map((row, index) => ({ ...row, _index: index })),
    sort: "window_ns",
    enter: (row) => enter(app, row),
    enterHelp: "click or Enter: selects it",
  });
}

/** Each device over the whole recording. */
function recorded(host, app) {
  const rank = app.state.get("rank");
  const rows = (app.doc.recorded ?? []).filter((row) => rank === null || String(row.rank) === rank);
  const names = ["rank", "device", "window_ns", "span_ns", "busy_ns", "idle_ns"];
  app.view = showTable(host, app, {
    label: "Devices",
    columns: names.map((name) => ({ name })),
    rows: rows.map((row, index) => ({ ...row, _index: index })),
    enter: (row) => app.state.open("overview", { rank: row.rank }),
    enterHelp: "click or Enter: selects its rank",
  });
}
