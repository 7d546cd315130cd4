// Why one run is slower than the other, in terms that add up.
import { axis as axisOf, base, draw, tip } from "../chart.js";
import { Table } from "../document.js";
import { showTable } from "../table.js";
import { el, multiline, shown } from "../text.js";
import { color } from "../theme.js";
import { percent, shortTime, time, timeUnit } from "../units.js";
import { choice } from "./breakdown.js";
import { partBar } from "./parts.js";

export const compare = { id: "compare", title: "Compare", uses: [], available: ({ comparison }) => comparison !== null && comparison !== undefined, render };

const AXES = ["layer", "op", "signature", "source"];
/** So many terms have a bar of their own; the others share one. */
const MOST_BARS = 9;

function render(host, app) {
  const { comparison: found } = app.doc;
  const [sentence, ...lines] = found.verdict;
  host.append(el("h2", { class: "sentence" }, multiline(sentence)));
  host.append(el("ul", { class: "verdict" }, ...lines.map((line) => el("li", {}, multiline(line)))));
  const said = found.verdict.join("\n");
  list(host, "They may not be comparable", found.comparable?.filter((line) => !said.includes(line)));
  const rows = new Table(found.terms).records();
  if (rows.length) waterfall(host, app, found, rows);
  bars(host, app, found);
  const hasIntervals = new Table(found.terms).names.includes("lo_ns");
  terms(host, app, "Terms", new Table(found.terms), [], "Differences are B less A per step, of the whole recordings, whatever is selected." + (hasIntervals ? " A difference whose interval holds 0 may be chance." : ""));
  const axes = AXES.filter((axis) => axis in (found.by ?? {}));
  const axis = axes.includes(app.state.get("by")) ? app.state.get("by") : axes[0];
  if (!axis) return;
  const tools = [choice("by", axis, axes.map((name) => [name, name]), (by) => app.state.go({ by, sort: null }))];
  terms(host, app, `By ${axis}`, new Table(found.by[axis]), tools);
}

function list(host, title, lines) {
  if (lines?.length) host.append(el("h3", {}, title), el("ul", { class: "problems" }, ...lines.map((line) => el("li", {}, multiline(line)))));
}

/** From the step of A to that of B, a bar for each term. */
function waterfall(host, app, found, rows) {
  const own = rows.length > MOST_BARS + 1 ? rows.slice(0, MOST_BARS) : rows;
  const rest = rows.slice(own.length);
  const others = rest.reduce((sum, { delta_ns }) => sum + delta_ns, 0);
  const steps = [...own, ...(rest.length ? [{ term: `${rest.length} others`, delta_ns: others }] : [])];
  let level = found.a_step_ns;
  const drawn = steps.map(({ term, delta_ns, verdict }) => {
    const from = level;
    level += delta_ns;
    return { term, delta_ns, verdict, low: Math.min(from, level), size: Math.abs(delta_ns) };
  });
  const ends = [found.a_step_ns, found.b_step_ns];
  host.append(el("h3", {}, "From A to B"));
  const box = el("div", { class: "chart" });
  host.append(box);
  const words = drawn.map(({ term, delta_ns }) => `${term}: ${signed(delta_ns)}`).join(", ");
  const label = `A takes ${time(Math.round(ends[0]))} per step, B ${time(Math.round(ends[1]))}. ${words}`;
  const { dispose } = draw(box, label, () => option(drawn, ends));
  app.onLeave(dispose);
}

const signed = (ns) => `${ns > 0 ? "+" : "\u2212"}${shortTime(Math.round(Math.abs(ns)))}`;

function option(drawn, [before, after]) {
  const unit = timeUnit(Math.max(before, after));
  const names = ["A", ...drawn.map(({ term }) => term), "B"];
  const tone = ({ delta_ns, verdict }) => color(verdict === "noise" ? "--muted" : delta_ns > 0 ? "--warn" : "--busy");
  // The base of a bar is no part of it.
  const below = [0, ...drawn.map(({ low }) => low), 0];
  const sizes = [
    { value: before, itemStyle: { color: color("--idle-1") } },
    ...drawn.map((each) => ({ value: each.size, itemStyle: { color: tone(each) } })),
    { value: after, itemStyle: { color: color("--idle-1") } },
  ];
  const ends = [...drawn.flatMap(({ low, size }) => [low, low + size]), before, after];
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  // Small terms of a long step are to be seen: the scale may begin above 0, and then says so.
  const floor = most - least < least / 4 ? Math.max(0, least - (most - least)) : 0;
  const text = ({ dataIndex: at }) => (at === 0 ? time(Math.round(before)) : at > drawn.length ? time(Math.round(after)) : signed(drawn[at - 1].delta_ns));
  return {
    ...base(),
    grid: { left: 8, right: 90, top: 8, bottom: 28, containLabel: true },
    tooltip: {
      ...base().tooltip,
      formatter: ({ dataIndex: at, name }) => tip(name, [["time", text({ dataIndex: at })], ...(at > 0 && at <= drawn.length ? [["of the step of A", percent((100 * drawn[at - 1].delta_ns) / before)], ...(drawn[at - 1].verdict ? [["which is", drawn[at - 1].verdict]] : [])] : [])]),
    },
    xAxis: axisOf({ type: "value", min: floor, name: floor ? `${unit.label}, from ${shortTime(Math.round(floor))}` : unit.label, nameLocation: "middle", nameGap: 24, axisLabel: { formatter: (ns) => String(Math.round((ns / unit.size) * 1000) / 1000) } }),
    yAxis: axisOf({ type: "category", data: names.map(shown), inverse: true }),
    series: [
      { type: "bar", stack: "terms", silent: true, itemStyle: { color: "transparent" }, data: below },
      { type: "bar", stack: "terms", data: sizes, barMaxWidth: 26, label: { show: true, position: "right", color: color("--text"), formatter: text } },
    ],
  };
}

/** Both steps, one above the other, with the same scale. */
function bars(host, app, found) {
  const [a, b] = found.parts;
  if (!a.windows || !b.windows) return;
  const lengths = found.parts.map(({ sums, windows }) => sums.reduce((sum, { time_ns }) => sum + time_ns, 0) / windows);
  host.append(el("h3", {}, "Both steps"));
  found.parts.forEach(({ sums, windows }, at) => {
    const bar = partBar(app, sums, windows, `${"AB"[at]}, ${shown([found.a, found.b][at])}`);
    bar.querySelector(".bar").style.width = `${(100 * lengths[at]) / Math.max(...lengths)}%`;
    host.append(bar);
  });
}

function terms(host, app, title, table, tools = [], hint = null) {
  host.append(el("h3", {}, title));
  if (hint) host.append(el("p", { class: "hint" }, hint));
  const isText = (name) => table.column(name).isText;
  const rows = table.records().map((row, index) => ({ ...row, _index: index }));
  app.view = showTable(host, app, {
    label: title,
    columns: table.names.map((name) => ({ name, text: isText(name), minWidth: isText(name) ? 140 : 100 })),
    rows,
    tools,
    totals: (data) => ({ delta_ns: data.reduce((sum, row) => sum + (row.delta_ns ?? 0), 0) }),
    empty: "Nothing differs.",
    quiet: title === "Terms",
  });
}
