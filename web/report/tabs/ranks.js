// Many ranks: each step of each rank as a field, the darker the more; what each rank did.
import { axis, base, draw, tip } from "../chart.js";
import { Table } from "../document.js";
import { showTable } from "../table.js";
import { el, multiline, shown } from "../text.js";
import { color } from "../theme.js";
import { percent, time } from "../units.js";
import { choice } from "./breakdown.js";
import { capital } from "./findings.js";

export const ranks = { id: "ranks", title: "Ranks", uses: ["rank", "step"], available: ({ meta }) => meta.ranks.length > 1, render };

const MEASURES = {
  window_ns: "time of the step",
  compute_ns: "computing",
  exposed_wait_ns: "exposed wait",
  exposed_transfer_ns: "exposed transfer",
  comm_only_ns: "exposed communication",
  idle_ns: "idle time",
};
/** The parts of a rank's time that add up to it, in the order of the columns. */
const PARTS = ["compute_only_ns", "comm_only_ns", "copy_only_ns", "comp_comm_ns", "copy_overlap_ns", "idle_ns"];
const HELPS = {
  window_ns: "of all steps; the parts up to idle add up to it",
  compute_only_ns: "kernels, and neither communication nor copies",
  comm_only_ns: "communication that nothing else covers: exposed",
  exposed_wait_ns: "of it, before the last member arrives: no lost time",
  exposed_transfer_ns: "of it, since the last member arrived",
  exposed_unmatched_ns: "of it, of collectives that were not matched",
  copy_only_ns: "copies alone",
  comp_comm_ns: "kernels beside communication",
  copy_overlap_ns: "copies beside something",
  busy_excess_pct: "computing, above the median of the ranks of its role",
  host_excess_pct: "idle time of a late host, above the median of the ranks of its role",
};

function render(host, app) {
  host.append(el("h2", {}, "Ranks"));
  const { job } = app.doc;
  if (job) {
    said(host, job);
    if (job.heat) heat(host, app, job.heat);
    if (job.ranks) whole(host, app, new Table(job.ranks));
  }
  steps(host, app);
}

/** Which rank is slow, and what else is to know. */
function said(host, job) {
  for (const text of job.answers) host.append(el("p", { class: "blame" }, multiline(capital(text))));
  if (job.sentences.length) host.append(el("ul", { class: "verdict" }, ...job.sentences.map((text) => el("li", {}, multiline(text)))));
}

/** The fields: a row for each rank, those that stand out first, a column for each step. */
function heat(host, app, found) {
  const cells = new Table(found.cells).records();
  const known = Object.keys(MEASURES).filter((name) => cells.some((cell) => cell[name] !== null));
  if (!known.length) return;
  const name = known.includes(app.state.get("measure")) ? app.state.get("measure") : known[0];
  host.append(el("div", { class: "toolbar" },
    choice("show", name, known.map((key) => [key, MEASURES[key]]), (measure) => app.state.go({ measure }))));
  const rank = app.state.get("rank");
  const step = app.state.get("step");
  const rows = found.rows.map((row, index) => ({ ...row, index })).filter(({ ranks: own }) => rank === null || own.map(String).includes(rank));
  const columns = found.steps.map((label, index) => ({ label, index })).filter(({ label }) => step === null || label === "all" || holds(label, step));
  const chosen = cells.filter((cell) => cell[name] !== null && rows.some(({ index }) => index === cell.row) && columns.some(({ index }) => index === cell.column));
  if (!chosen.length) {
    host.append(el("p", { class: "empty" }, "No step of this selection."));
    return;
  }
  const folded = found.rows.some(({ ranks: own }) => own.length > 1);
  host.append(el("p", { class: "hint" }, `Ranks that stand out are at the top${folded ? "; the others are in groups, whose medians are shown" : ""}. A click on a field selects its rank and step on every page.`));
  const box = el("div", { class: "chart", id: "heat" });
  box.style.height = `${130 + Math.min(640, 28 * rows.length)}px`;
  host.append(box);
  const words = `${MEASURES[name]} of ${rows.length} ranks or groups of them in ${columns.length} steps; the tables below have the numbers`;
  const { chart: drawn, dispose } = draw(box, words, () => option(chosen, rows, columns, name));
  drawn.on("click", ({ dataIndex }) => {
    const cell = chosen[dataIndex];
    const { ranks: own } = found.rows[cell.row];
    const label = found.steps[cell.column];
    if (own.length === 1) app.state.open("overview", { rank: own[0], ...(/^-?\d+$/.test(label) ? { step: label } : {}) });
  });
  app.onLeave(dispose);
}

/** Whether a column, of one step or several, holds a step. */
function holds(label, step) {
  const [first, last] = label.split(",")[0].split("\u2013").map(Number);
  return Number(step) >= first && Number(step) <= (last ?? first);
}

function option(cells, rows, columns, name) {
  const values = cells.map((cell) => cell[name]);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const rowOf = new Map(rows.map(({ index }, at) => [index, at]));
  const columnOf = new Map(columns.map(({ index }, at) => [index, at]));
  return {
    ...base(),
    grid: { left: 8, right: 16, top: 8, bottom: 64, containLabel: true },
    xAxis: axis({ type: "category", data: columns.map(({ label }) => label), splitArea: { show: false } }),
    yAxis: axis({ type: "category", data: rows.map(({ label }) => shown(label)), inverse: true }),
    visualMap: {
      min: least, max: most, orient: "horizontal", left: "center", bottom: 0,
      calculable: false, text: [time(most), time(least)], textStyle: { color: color("--text") },
      inRange: { color: [color("--cold"), color("--hot")] },
    },
    tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => fieldTip(cells[dataIndex], rows[rowOf.get(cells[dataIndex].row)], columns[columnOf.get(cells[dataIndex].column)]) },
    series: [{
      type: "heatmap",
      data: cells.map((cell) => [columnOf.get(cell.column), rowOf.get(cell.row), cell[name]]),
      itemStyle: { borderColor: color("--page"), borderWidth: rows.length > 60 ? 0 : 1 },
    }],
  };
}

function fieldTip(cell, row, column) {
  return tip(`${row.label}, step ${column.label}`, Object.entries(MEASURES).map(([name, words]) => [words, time(cell[name])]));
}

/** Each rank over all its steps, in parts that add up. */
function whole(host, app, table) {
  const rank = app.state.get("rank");
  const rows = table.records().filter((row) => rank === null || String(row.rank) === rank);
  const has = (name) => rows.some((row) => row[name] !== null && row[name] !== undefined && row[name] !== 0);
  const exposed = ["exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns"];
  const numbers = ["window_ns", ...PARTS.slice(0, 2), ...exposed, ...PARTS.slice(2), "overlap_pct", "busy_excess_pct", "host_excess_pct"];
  host.append(el("h3", {}, "Parts of each rank"));
  app.view = showTable(host, app, {
    label: "Parts of each rank",
    columns: [
      { name: "rank" }, ...(rows.some(({ verdict }) => verdict !== null) ? [{ name: "verdict", text: true, minWidth: 240 }] : []),
      ...numbers.filter((name) => name === "window_ns" || has(name)).map((name) => ({ name, help: HELPS[name] ?? null })),
    ],
    rows: rows.map((row, index) => ({ ...row, _index: index })),
    enter: (row) => app.state.open("overview", { rank: row.rank }),
    enterHelp: "click or Enter: selects its rank",
    command: () => ({ text: app.doc.meta.command.replace(" prof ", " ranks ") }),
  });
}

/** Each step of each device. */
function steps(host, app) {
  const table = app.table("steps");
  const rows = table.records(app.chosen("steps", ["rank", "step"]));
  if (!rows.length) {
    host.append(el("p", { class: "empty" }, "No step is selected or recorded: of each device there is the whole recording."));
    recorded(host, app);
    return;
  }
  host.append(el("h3", {}, "Steps"));
  const numbers = ["rank", "device", "step", "window_ns", "busy_ns", "utilization", "mfu"];
  app.view = showTable(host, app, {
    label: "Steps of all ranks",
    columns: [...numbers.map((name) => ({ name, help: app.help(name) })), { name: "outlier" }, { name: "note", text: true }],
    rows: rows.map((row, index) => ({ ...row, _index: index })),
    sort: "window_ns",
    enter: ({ rank, step }) => app.state.open("overview", { rank, step }),
    enterHelp: "click or Enter: selects it",
    quiet: Boolean(app.doc.job),
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
    quiet: Boolean(app.doc.job),
  });
}
