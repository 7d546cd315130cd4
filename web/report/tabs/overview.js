// First for a reader: a sentence, where a step goes, what to do, how sure that is.
import { draw, axis, base, tip } from "../chart.js";
import { el, multiline, NULL, shown, titled } from "../text.js";
import { elsewhere } from "../elsewhere.js";
import { color } from "../theme.js";
import { explained } from "../glossary.js";
import { byteUnit, counted, percent, rate, shortTime, time, timeScale } from "../units.js";
import { capital, nothingFound, range, rankOf } from "./findings.js";
import { legend, partBar } from "./parts.js";

export const overview = { id: "overview", title: "Overview", uses: ["rank", "step"], render };

function render(host, app) {
  const { heading, job, meta } = app.doc;
  const slow = meta.ranks.length > 1 ? (job?.answers ?? []) : [];
  const [first, ...more] = [...slow.map(capital), heading.sentence];
  host.append(el("h2", { class: "sentence" }, multiline(first)), ...more.map((line) => el("p", { class: line === heading.sentence ? "lead" : "blame" }, multiline(line))));
  if (heading.figures.length) host.append(el("dl", { class: "tiles" }, ...heading.figures.map(tile)));
  // The sentence and the tiles are not repeated.
  const isTold = (line) => heading.sentence.includes(line.split(";")[0]) || ["GPU utilization", ...heading.figures.map(({ name }) => name)].some((name) => line.startsWith(name));
  const lines = heading.lines.filter((line) => !isTold(line));
  host.append(el("ul", { class: "heading" }, ...lines.map((line) => el("li", {}, ...explained(multiline(line))))));
  const hasSteps = app.table("parts").rows > 0;
  section(host, hasSteps ? "A step" : "All that was recorded", (box) => (hasSteps ? stepBar : wholeBar)(box, app));
  section(host, "What to change first", (box) => topFindings(box, app));
  section(host, "How sure this is", (box) => quality(box, app));
  section(host, "Steps", (box) => stepChart(box, app));
  if (app.doc.elsewhere) section(host, "On other GPUs", (box) => otherDevices(box, app.doc.elsewhere));
  if (meta.notes?.length) section(host, "Notes", (box) => notes(box, app));
}

/** One number that a recording is judged by, and what it is made of where that is known. */
function tile({ name, value, note, parts }) {
  return el("div", { class: value === null ? "unknown" : "" },
    el("dt", {}, ...explained(name)), el("dd", {}, value ?? NULL),
    parts?.length ? el("dd", { class: "below" }, stacked(parts)) : null,
    el("dd", { class: "hint" }, multiline(note)));
}

/** Sizes as one bar, with their names. */
function stacked(parts) {
  const unit = byteUnit(Math.max(...parts.map(({ bytes }) => bytes)));
  const tones = parts.map((_, at) => `--part-${Math.min(at, 5)}`);
  const segments = parts.map(({ bytes }, at) => {
    const node = el("span", { class: "segment" });
    node.style.background = `var(${tones[at]})`;
    node.style.flexGrow = String(bytes);
    return node;
  });
  const words = parts.map(({ name, bytes }, at) => [tones[at], `${name} ${rate(bytes / unit.size)} ${unit.label}`]);
  return el("div", {}, el("div", { class: "bar thin", "aria-hidden": "true" }, ...segments), legend(words));
}

function section(host, title, fill) {
  const box = el("section", {}, el("h3", {}, title));
  host.append(box);
  fill(box);
}

/** The parts of the selected step, or the mean of all but slow first ones. */
function stepBar(box, app) {
  const parts = app.table("parts");
  const steps = app.table("steps");
  const key = (table, row) => `${table.at("rank", row)} ${table.at("start_ns", row)}`;
  const slow = new Set(app.state.get("step") === null ? steps.where((row) => steps.at("left_out", row)).map((row) => key(steps, row)) : []);
  const rows = app.chosen("parts", ["rank", "step"]).filter((row) => !slow.has(key(parts, row)));
  if (!rows.length) {
    box.append(el("p", { class: "empty" }, "The selected step has no parts of its own in this file."));
    return;
  }
  const windows = distinct(parts, rows, ["rank", "device", "step", "start_ns"]);
  const devices = distinct(parts, rows, ["rank", "device"]);
  const count = distinct(parts, rows, ["step", "start_ns", "rank"]);
  const of = devices > 1 ? ` on ${devices} devices` : "";
  box.append(partBar(app, summed(parts, rows), windows, windows > 1 ? `mean of ${counted(count, "step")}${of}` : "one step"));
}

/** The parts of all that was recorded of a device: there are no steps. */
function wholeBar(box, app) {
  const parts = app.table("whole");
  const rows = app.chosen("whole", ["rank"]);
  if (!rows.length) {
    box.append(el("p", { class: "empty" }, "Nothing was recorded that takes time."));
    return;
  }
  const devices = distinct(parts, rows, ["rank", "device"]);
  const what = app.doc.meta.has_gpu ? "device" : "rank, without a GPU";
  box.append(partBar(app, summed(parts, rows), devices, devices > 1 ? `mean of ${devices} devices` : `one ${what}`));
}

/** How many different values of some columns rows have. */
function distinct(table, rows, names) {
  return new Set(rows.map((row) => names.map((name) => table.at(name, row)).join("/"))).size;
}

/** The time of each part. */
function summed(parts, rows) {
  const sums = new Map();
  for (const row of rows) {
    const part = parts.at("part", row);
    const sum = sums.get(part) ?? { part, label: parts.at("label", row), time_ns: 0 };
    sum.time_ns += parts.at("time_ns", row);
    sums.set(part, sum);
  }
  return [...sums.values()];
}

function topFindings(box, app) {
  const fires = app.doc.findings.filter(({ status }) => status === "fires");
  const largest = fires.filter(({ hi_ns }) => hi_ns !== null).sort((a, b) => b.hi_ns - a.hi_ns).slice(0, 3);
  if (!largest.length) {
    const words = fires.length ? "No finding has a time at stake." : nothingFound(app);
    box.append(el("p", { class: "empty" }, words));
    return;
  }
  box.append(el("p", { class: "hint" }, "Gains are of all that was recorded, not of one step. They overlap: do not add them up."));
  const items = largest.map((found) =>
    el("li", { class: `finding ${found.severity}` },
      rankOf(app, found), el("strong", {}, shown(found.title)), ": ", shown(found.finding), " ",
      el("span", { class: "stake" }, range(app, found)), " ",
      found.source ? el("code", { title: titled(found.source) }, shown(found.shown)) : null,
      found.remedy ? el("div", { class: "remedy" }, shown(found.remedy)) : null));
  const all = el("button", { type: "button", class: "link", click: () => app.state.open("findings") }, "All findings");
  box.append(el("ol", { class: "findings" }, ...items), all);
}

function quality(box, app) {
  const { quality: known } = app.doc;
  const disturbed = known.disturbed ?? [];
  const polluted = known.polluted === null ? "not known" : known.polluted ? `yes: ${disturbed.join(", ")}` : "no";
  const share = (value, of) => (value === null ? NULL : `${percent(value)} of ${of}`);
  const facts = [
    ["linked to ops", share(known.linked_pct, "the kernels\u2019 time")],
    ["with known FLOPs and bytes", share(known.counted_pct, app.doc.meta.has_gpu ? "the GPU work" : "the op time")],
    ["disturbed by recording", polluted],
    ["steps used", known.steps_used ?? NULL],
  ];
  const list = facts.map(([name, value]) => el("div", {}, el("dt", {}, ...explained(name)), el("dd", {}, shown(value))));
  box.append(el("dl", { class: "facts" }, ...list));
  const problems = known.problems ?? [];
  if (!problems.length) return;
  const items = problems.map(({ finding, advice }) =>
    el("li", {}, shown(finding), advice ? el("span", { class: "advice" }, ` ${shown(advice)}`) : null));
  box.append(el("details", {}, el("summary", {}, `${counted(problems.length, "remark")} on the recording`), el("ul", { class: "problems" }, ...items)));
}

/** The length of each step; a click selects it everywhere. */
function stepChart(box, app) {
  const table = app.table("steps");
  const rows = app.chosen("steps", ["rank"]);
  if (!rows.length) {
    box.append(el("p", { class: "empty" }, multiline(`No step was recorded. To record them: ${app.doc.meta.how_to_record.steps}.`)));
    return;
  }
  const steps = longestOf(table, rows);
  const several = new Set(rows.map((row) => `${table.at("rank", row)}/${table.at("device", row)}`)).size > 1;
  const hint = several ? "Shown is the device that took longest in each step. " : "";
  const odd = steps.some(({ outlier }) => outlier) ? " \u25c6 marks odd ones." : "";
  if (steps.some(isBusy)) box.append(legend([["--busy", "busy"], ["--idle", "idle"]]));
  box.append(el("p", { class: "hint" }, `${hint}A click selects a step on every page.${odd}`));
  const host = el("div", { class: "chart short" });
  box.append(host);
  const words = steps.map((step) => `${step.step}: ${shortTime(step.window_ns)}`).slice(0, 50).join(", ");
  const { chart, dispose } = draw(host, `Time of each step. ${words}`, () => stepOption(app, steps));
  chart.on("click", ({ dataIndex }) => app.state.go({ step: steps[dataIndex].step }));
  app.onLeave(dispose);
}

/** Whether it is known how long the device was busy in a step. */
const isBusy = ({ busy_ns }) => busy_ns !== null;

function longestOf(table, rows) {
  const found = new Map();
  for (const row of rows) {
    const step = table.record(row);
    const other = found.get(step.step);
    if (!other || step.window_ns > other.window_ns) found.set(step.step, step);
  }
  return [...found.values()];
}

function stepOption(app, steps) {
  const chosen = app.state.get("step");
  const faded = (step) => (chosen === null || String(step.step) === chosen ? 1 : 0.35);
  const bar = (name, tone, value) => ({
    type: "bar", stack: "step", name, barMaxWidth: 48,
    data: steps.map((step) => ({ value: value(step), itemStyle: { color: color(tone), opacity: faded(step) } })),
  });
  const odd = steps.map((step) => (step.outlier ? step.window_ns : null));
  const unit = timeScale(Math.max(...steps.map(({ window_ns }) => window_ns)));
  return {
    ...base(),
    grid: { left: 8, right: 8, top: 24, bottom: 8, containLabel: true },
    xAxis: axis({ type: "category", data: steps.map(({ step }) => String(step ?? NULL)) }),
    yAxis: axis({ type: "value", axisLabel: { formatter: (value) => `${unit.form(value)} ${unit.label}` } }),
    series: [
      bar("busy", "--busy", (step) => (isBusy(step) ? step.busy_ns : step.window_ns)),
      bar("idle", "--idle", (step) => (isBusy(step) ? step.window_ns - step.busy_ns : 0)),
      { type: "scatter", symbol: "diamond", symbolSize: 10, symbolOffset: [0, -8], data: odd, silent: true, itemStyle: { color: color("--warn") } },
    ],
    tooltip: { ...base().tooltip, trigger: "axis", axisPointer: { type: "shadow" }, formatter: ([{ dataIndex }]) => stepTip(steps[dataIndex]) },
  };
}

function stepTip(step) {
  const device = step.device === null ? "" : `, device ${step.device}`;
  return tip(`step ${step.step}, rank ${step.rank}${device}`, [
    ["window", time(step.window_ns)],
    ["busy", time(step.busy_ns)],
    ["idle", time(isBusy(step) ? step.window_ns - step.busy_ns : null)],
    ["MFU", percent(step.mfu)],
    ...(step.note ? [["note", step.note]] : []),
  ]);
}

/** A step elsewhere: predicted, not measured. */
function otherDevices(box, doc) {
  const of = doc.step === null ? "All that was recorded" : `Step ${doc.step}`;
  box.append(el("p", { class: "hint" }, `${of}, predicted from the FLOPs and bytes of its kernels, with its host as recorded.`), elsewhere(doc));
}

function notes(box, app) {
  box.append(el("ul", {}, ...app.doc.meta.notes.map((note) => el("li", {}, multiline(note)))));
}
