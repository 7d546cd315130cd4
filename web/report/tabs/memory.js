// How much memory was allocated, and by what at the peak.
import { axis, base, draw, slider, tip } from "../chart.js";
import { Table } from "../document.js";
import { showTable } from "../table.js";
import { el } from "../text.js";
import { color } from "../theme.js";
import { byteUnit, quantity, rate, time, timeScale } from "../units.js";
import { choice, placeOf } from "./breakdown.js";

export const memory = { id: "memory", title: "Memory", uses: ["rank"], render };

function render(host, app) {
  host.append(el("h2", {}, "Memory"));
  const rank = app.state.get("rank");
  const curves = (app.doc.memory ?? []).filter((curve) => rank === null || String(curve.rank) === rank);
  if (!curves.length) {
    host.append(el("p", { class: "empty" }, `No allocation was recorded. Record with ${app.doc.meta.how_to_record.memory}.`));
    return;
  }
  const place = placeOf(app, curves);
  const curve = curves[place];
  if (curves.length > 1) {
    const names = curves.map(({ rank: r, device }, index) => [index, `rank ${r}, device ${device}`]);
    host.append(el("div", { class: "toolbar" }, choice("of", place, names, (value) => app.state.go({ window: value }))));
  }
  chart(host, app, curve);
  peak(host, app, curve);
}

function chart(host, app, curve) {
  const box = el("div", { class: "chart" });
  host.append(box);
  const words = `Memory of rank ${curve.rank}, device ${curve.device} over time` + (curve.peak ? `; at most ${quantity(curve.peak.allocated, byteUnit)}` : "");
  const { dispose } = draw(box, words, () => option(curve));
  app.onLeave(dispose);
}

function option(curve) {
  const series = (name, values, tone) => ({
    type: "line", name, step: "end", symbol: "none", sampling: "max",
    lineStyle: { width: 1.5, color: color(tone) }, itemStyle: { color: color(tone) },
    data: curve.t_ns.map((t, index) => [t, values[index]]),
  });
  const all = [series("allocated", curve.allocated, "--matrix")];
  if (curve.reserved) all.push(series("reserved", curve.reserved, "--muted"));
  if (curve.peak) {
    const label = { formatter: "peak", color: color("--text") };
    all[0].markLine = { symbol: "none", silent: true, label, lineStyle: { color: color("--warn") }, data: [{ xAxis: curve.peak.t_ns }] };
  }
  const scale = timeScale(Math.max(...curve.t_ns));
  const form = (value) => `${scale.form(value)} ${scale.label}`;
  const unit = byteUnit(Math.max(...curve.allocated));
  return {
    ...base(),
    legend: { textStyle: { color: color("--text") }, top: 0 },
    grid: { left: 8, right: 24, top: 32, bottom: 48, containLabel: true },
    xAxis: axis({ type: "value", min: "dataMin", max: "dataMax", axisLabel: { formatter: form } }),
    yAxis: axis({ type: "value", axisLabel: { formatter: (value) => `${rate(value / unit.size)} ${unit.label}` } }),
    dataZoom: [slider({ labelFormatter: form })],
    tooltip: { ...base().tooltip, trigger: "axis", formatter: (found) => tip(time(found[0].value[0]), found.map(({ seriesName, value }) => [seriesName, quantity(value[1], byteUnit)])) },
    series: all,
  };
}

function peak(host, app, { peak: found }) {
  if (!found) return;
  host.append(el("h3", {}, `At the peak: ${quantity(found.allocated, byteUnit)}`));
  if (!found.live) {
    host.append(el("p", { class: "empty" }, "The blocks at the peak are not known."));
    return;
  }
  host.append(el("p", { class: "hint" }, "Live blocks by op, layer, line and category, as pyprof2 memory --by op,layer,line,category,certainty has it. Certainty is of the category: exact, inferred, or none."));
  const live = new Table(found.live);
  app.view = showTable(host, app, {
    label: "Memory at the peak",
    columns: [
      { name: "op", text: true }, { name: "bytes" }, { name: "count", help: "allocations" },
      { name: "layer", text: true }, { name: "source", text: true },
      { name: "category", text: true }, { name: "certainty", text: true, help: "of the category" },
    ],
    rows: live.records().map((row, index) => ({ ...row, _index: index })),
    sort: "bytes",
    totals: (data) => ({
      count: data.reduce((sum, row) => sum + row.count, 0),
      bytes: data.reduce((sum, row) => sum + row.bytes, 0),
    }),
    empty: "The blocks at the peak were allocated before the recording began.",
  });
}
