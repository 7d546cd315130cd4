// The steps of an inference server: phases on a line of time, kinds of layer, tokens, and the roof of the memory.
import { axis, base, draw, slider, textWidth, tip } from "../chart.js";
import { showTable } from "../table.js";
import { el, shown } from "../text.js";
import { color } from "../theme.js";
import { counted, integer, percent, rate, shortTime, time, timeScale } from "../units.js";
import { legend } from "./parts.js";

export const serving = {
  id: "serving", title: "Serving", uses: ["rank"], render,
  available: (doc) => doc.serving !== null && doc.serving !== undefined,
};

const PHASES = {
  prefill: "--matrix", decode: "--comm", mixed: "--copies", verify: "--compute", draft: "--idle-1", diffusion: "--matrix", idle: "--idle-4",
};
/** Families of kinds: their colour, and how much of it each has, so that neighbours differ. */
const KINDS = {
  experts: ["--matrix", 100], gate_up: ["--matrix", 85], down: ["--matrix", 70], qkv: ["--matrix", 55], o: ["--matrix", 42],
  router: ["--matrix", 34], lm_head: ["--matrix", 26], linear: ["--matrix", 100], attention: ["--copies", 100], kv_write: ["--copies", 60],
  rope: ["--copies", 35], norm: ["--idle-1", 100], activation: ["--idle-1", 60], sampling: ["--warn", 100], communication: ["--comm", 100],
  copy: ["--muted", 70], other: ["--muted", 40],
};
const ROW = 30;

function render(host, app) {
  const found = app.doc.serving;
  host.append(el("h2", {}, "Serving"));
  const phases = found.phases.filter(({ phase }) => phase !== "outside");
  host.append(el("dl", { class: "tiles" }, ...phases.map(tile)));
  timeline(host, app, found);
  for (const row of found.phases) kindBar(host, row, found.kinds.filter(({ phase }) => phase === row.phase));
  roofs(host, found, phases);
  tables(host, app, found);
}

function tile(row) {
  const size = row.requests === null ? "" : ` of ${rate(row.requests)} requests`;
  return el("div", {}, el("dt", {}, shown(row.phase)), el("dd", {}, speed(row) ?? shortTime(row.device_ns)), el("dd", { class: "hint" }, `${counted(row.steps, "step")}${size}`));
}

function speed(row) {
  if (row.phase === "prefill" && row.in_per_s !== null) return `${integer(Math.round(row.in_per_s))} tokens/s in`;
  if (row.out_per_s) return `${integer(Math.round(row.out_per_s))} tokens/s out`;
  return null;
}

/** The work of each step on the devices, one lane for each rank. */
function timeline(host, app, { steps, steps_left_out: more }) {
  const rank = app.state.get("rank");
  const own = steps.filter((step) => rank === null || String(step.rank) === rank);
  if (!own.length) {
    host.append(el("p", { class: "empty" }, "No work of a step was recorded."));
    return;
  }
  const names = [...new Set(own.map((step) => `rank ${step.rank}`))];
  const left = more ? ` The first ${counted(steps.length, "step")}; ${integer(more)} more are in run.serving_steps().` : "";
  host.append(el("h3", {}, "Steps on the devices"), el("p", { class: "hint" }, `From the first work that a step launched to the last, which is not when its range on the host was.${left}`));
  host.append(legend([...new Set(own.map(({ phase }) => phase))].map((phase) => [PHASES[phase] ?? "--muted", shown(phase)])));
  const box = el("div", { class: "chart" });
  box.style.height = `${90 + ROW * names.length}px`;
  host.append(box);
  const { dispose } = draw(box, `Phases of ${counted(own.length, "step")} over time; the table of phases below sums them up`, () => option(own, names));
  app.onLeave(dispose);
}

function option(steps, names) {
  const from = Math.min(...steps.map(({ start_ns }) => start_ns));
  const to = Math.max(...steps.map(({ start_ns, span_ns }) => start_ns + span_ns));
  const unit = timeScale(to - from);
  const form = (value) => `${unit.form(value)} ${unit.label}`;
  return {
    ...base(),
    grid: { left: 16 + Math.max(...names.map((name) => textWidth(name))), right: 24, top: 8, bottom: 68 },
    xAxis: axis({ type: "value", min: 0, max: to - from, axisLabel: { formatter: form } }),
    yAxis: axis({ type: "category", data: names, inverse: true, axisTick: { show: false } }),
    dataZoom: [slider({ filterMode: "weakFilter", labelFormatter: form })],
    tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => stepTip(steps[dataIndex]) },
    series: [{
      type: "custom", renderItem: drawStep, encode: { x: [1, 2], y: 0 }, progressive: 0,
      data: steps.map((step) => ({
        value: [names.indexOf(`rank ${step.rank}`), step.start_ns - from, step.start_ns - from + step.span_ns],
        itemStyle: { color: color(PHASES[step.phase] ?? "--muted") },
      })),
    }],
  };
}

function drawStep(params, api) {
  const [x, y] = api.coord([api.value(1), api.value(0)]);
  const [end] = api.coord([api.value(2), api.value(0)]);
  const { x: left, width } = params.coordSys;
  const from = Math.max(x, left);
  const to = Math.min(Math.max(end - 1, x + 1), left + width);
  if (to <= from) return null;
  return { type: "rect", shape: { x: from, y: y - ROW / 2 + 3, width: to - from, height: ROW - 6 }, style: { fill: api.visual("color") } };
}

function stepTip(step) {
  return tip(`step ${step.serving_step}: ${step.phase}`, [
    ["requests", step.requests], ["new tokens", step.new_tokens], ["span", time(step.span_ns)], ["busy", time(step.busy_ns)],
    ["gap", time(step.gap_ns)], ["range on the host", time(step.host_ns)], ["of it waiting", time(step.wait_ns)],
  ].filter(([, value]) => value !== null && value !== undefined));
}

function toneOf(kind) {
  const [tone, part] = KINDS[kind] ?? ["--muted", 40];
  return `color-mix(in srgb, var(${tone}) ${part}%, var(--page))`;
}

function kindBar(host, { phase, device_ns: whole, steps }, kinds) {
  if (!kinds.length || !whole) return;
  const sorted = [...kinds].sort((a, b) => b.device_ns - a.device_ns);
  const each = steps > 1 ? `, ${shortTime(Math.round(whole / steps))} a step` : "";
  const segments = sorted.map(({ kind, device_ns }) => {
    const node = el("div", { class: "segment", title: `${kind}: ${integer(device_ns)} ns` });
    node.style.background = toneOf(kind);
    node.style.flexGrow = String(device_ns / whole);
    return node;
  });
  const entries = sorted.map(({ kind, device_ns }) => {
    const mark = el("span", { class: "mark" });
    mark.style.background = toneOf(kind);
    return el("li", { title: `${kind}: ${integer(device_ns)} ns`, "data-kind": kind, "data-ns": device_ns },
      mark, shown(kind), " ", el("b", {}, percent((100 * device_ns) / whole)), ` ${shortTime(device_ns)}`);
  });
  host.append(el("div", { class: "parts" },
    el("h3", {}, shown(phase)), el("p", { class: "hint" }, `By kind of layer: ${time(whole)}${each}`),
    el("div", { class: "bar", "aria-hidden": "true" }, ...segments), el("ul", { class: "legend" }, ...entries)));
}

/** How much of the memory's bandwidth, and of the peaks for products, each phase used. */
function roofs(host, found, phases) {
  host.append(el("h3", {}, "Against the roof"));
  if (found.model === null) {
    host.append(el("p", { class: "empty" }, "What the phases could do at most follows from the model: pyprof2 report --model config.json."));
    return;
  }
  const known = phases.filter(({ mbu_least_pct: least }) => least !== null);
  if (!known.length) {
    host.append(el("p", { class: "empty" }, "The limits of the device or the tokens of the batches are not known."));
  }
  for (const row of known) {
    host.append(roof(`${row.phase}, MBU (bytes of weights, keys and values)`, row.mbu_least_pct, row.mbu_most_pct), roof(`${row.phase}, MFU (FLOPs of the model)`, row.mfu_least_pct, row.mfu_most_pct));
  }
  host.append(el("ul", { class: "findings" }, ...found.costs.map((words) => el("li", {}, shown(words)))));
}

function roof(name, least, most) {
  if (least === null || least === undefined) return el("p", { class: "hint" }, `${shown(name)}: not known`);
  const end = most ?? least;
  const words = most === null ? `at least ${rate(least)} %` : rate(least) === rate(end) ? `${rate(end)} %` : `${rate(least)} to ${rate(end)} %`;
  const fill = el("div", { class: "fill" });
  fill.style.width = `${Math.min(100, least)}%`;
  const open = el("div", { class: "open" });
  open.style.width = `${Math.max(0, Math.min(100, end) - Math.min(100, least))}%`;
  return el("div", { class: "roof" }, el("p", {}, shown(name), ": ", el("b", {}, words)), el("div", { class: "track", "aria-hidden": "true" }, fill, open));
}

const whole = (value) => (value === null ? null : Math.round(value));

function tables(host, app, found) {
  host.append(el("h3", {}, "Phases"));
  app.view = showTable(host, app, {
    label: "Phases",
    columns: [
      { name: "phase", text: true, minWidth: 90 },
      { name: "steps" }, { name: "requests", help: "of a step, on average" }, { name: "new_tokens", header: "new tokens" },
      { name: "device_ns", help: "of what overlaps, of that which began first" }, { name: "share_pct" },
      { name: "span_ns", help: "from first to last work" }, { name: "gap_ns", help: "without work of the step" },
      { name: "wait_ns", help: "of the host in ranges of the steps" },
      { name: "in_per_s", header: "in/s" }, { name: "out_per_s", header: "out/s", help: "tokens of the output, at least" },
    ],
    rows: found.phases.map((row, index) => ({ ...row, in_per_s: whole(row.in_per_s), out_per_s: whole(row.out_per_s), _index: index })),
    sort: "device_ns",
  });
  host.append(el("h3", {}, "Kinds of layer"));
  showTable(host, app, {
    label: "Kinds of layer",
    columns: [
      { name: "phase", text: true, minWidth: 90 }, { name: "kind", text: true, minWidth: 110 },
      { name: "count" }, { name: "device_ns" }, { name: "share_pct" },
      { name: "tflops_least", header: "TFLOP/s, least" }, { name: "tflops_most", header: "most" },
      { name: "gbps_least", header: "GB/s, least" }, { name: "gbps_most", header: "most" },
      { name: "costed_pct", help: "share of the time whose work is known: by the model, or exactly by shapes" },
    ],
    rows: found.kinds.map((row, index) => ({ ...row, _index: index })),
    sort: "device_ns",
    quiet: true,
  });
}
