// The critical path: what the length of the recording rests on, who is to blame, and what-ifs.
import { Table } from "../document.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, multiline } from "../text.js";
import { time } from "../units.js";
import { copy } from "../clipboard.js";
import { capital } from "./findings.js";
import { legend } from "./parts.js";

export const path = { id: "path", title: "Critical path", uses: ["rank"], available: ({ job }) => Boolean(job?.path), render };

const TONES = { kernel: "--matrix", transfer: "--comm", copy: "--copies", launch: "--compute" };
const IDLE_TONES = 6;

function render(host, app) {
  const { job } = app.doc;
  const rank = app.state.get("rank");
  const table = new Table(job.path);
  const all = table.records().map((row, _index) => ({ ...row, _index }));
  const rows = all.filter((row) => rank === null || String(row.rank) === rank);
  const sum = rows.reduce((whole, { time_ns }) => whole + time_ns, 0);
  host.append(el("h2", {}, "Critical path"));
  host.append(el("p", {}, rank === null
    ? `${time(job.window_ns)} from the first work to the last: the stretches of the path add up to it.`
    : `${time(sum)} of ${time(job.window_ns)} of the path run on rank ${rank}.`));
  for (const text of job.answers) host.append(el("p", { class: "blame" }, multiline(capital(text))));
  bar(host, rows, job.window_ns);
  stretches(host, app, table, rows);
  blame(host, app, job.blame, rank);
  whatIfs(host, app, job);
}

/** The parts of the path, as one bar with its legend. */
function bar(host, rows, window) {
  const sums = new Map();
  for (const { kind, time_ns } of rows) sums.set(kind, (sums.get(kind) ?? 0) + time_ns);
  const kinds = [...sums].sort((a, b) => b[1] - a[1]);
  let place = 0;
  const toned = kinds.map(([kind, ns]) => [kind, ns, TONES[kind] ?? `--idle-${Math.min(place++, IDLE_TONES - 1)}`]);
  const segments = toned.map(([, ns, tone]) => {
    const node = el("div", { class: "segment" });
    node.style.background = `var(${tone})`;
    node.style.flexGrow = String(ns / window);
    return node;
  });
  const words = toned.map(([kind, ns, tone]) => [tone, `${kind} ${((100 * ns) / window).toFixed(1)} %, ${time(ns)}`]);
  host.append(el("div", { class: "parts" }, el("div", { class: "bar", "aria-hidden": "true" }, ...segments), legend(words)));
}

function stretches(host, app, table, rows) {
  const texts = ["kind", "op", "source", "layer", "kernel"].filter((name) => table.has(name) && rows.some((row) => row[name] !== null));
  const several = new Set(rows.map(({ rank }) => rank)).size > 1;
  host.append(el("h3", {}, "What it is made of"));
  app.view = showTable(host, app, {
    label: "Stretches of the critical path",
    columns: [
      ...(several ? [{ name: "rank" }] : []),
      { name: "time_ns" },
      { name: "share_pct", help: "of the path" },
      { name: "count", help: "stretches" },
      ...texts.map((name) => ({ name, text: true, minWidth: name === "kind" ? 80 : 140, ...shownAs(table, name) })),
    ],
    rows,
    sort: "time_ns",
    totals: (data) => ({ time_ns: sumOf(data, "time_ns"), share_pct: sumOf(data, "share_pct"), count: sumOf(data, "count") }),
    enter: (row) => row.op !== null && app.state.open("ops", { op: encodeText(row.op, app.cube.table.column("op").texts ?? []), ...(row.rank === null ? {} : { rank: row.rank }) }),
    enterHelp: "click or Enter: the op",
    command: () => ({ text: `${app.doc.meta.command.replace(" prof ", " ranks ")} --by path` }),
  });
}

const sumOf = (data, name) => data.reduce((sum, row) => sum + (row[name] ?? 0), 0);

/** Texts that have a shorter one to be shown. */
const shownAs = (table, name) => ({ display: (text) => table.column(name).display(text) });

/** The parts of the path between collectives, by their excess over other ranks. */
function blame(host, app, raw, rank) {
  if (!raw) return;
  const table = new Table(raw);
  const rows = table.records().map((row, _index) => ({ ...row, _index })).filter((row) => rank === null || String(row.rank) === rank);
  host.append(el("h3", {}, "Who is to blame"));
  host.append(el("p", { class: "hint" }, "Parts of the path between two collectives, each less the median of the same calls of other ranks. What the job would gain without is below, by replay."));
  showTable(host, app, {
    label: "Blame chain",
    columns: [
      { name: "rank" }, { name: "step" },
      { name: "excess_ns", help: "over the medians of other ranks" },
      { name: "time_ns", help: "of the part" },
      { name: "margin_ns", help: "by which it came later than the last rank but one" },
      ...["kind", "cause", "op", "layer", "source"].filter((name) => rows.some((row) => row[name] !== null))
        .map((name) => ({ name, text: true, minWidth: name === "kind" ? 80 : 150, ...shownAs(table, name) })),
    ],
    rows,
    sort: "excess_ns",
    enter: (row) => app.state.open("overview", { rank: row.rank, ...(row.step === null ? {} : { step: row.step }) }),
    enterHelp: "click or Enter: selects its rank and step",
    command: () => ({ text: `${app.doc.meta.command.replace(" prof ", " ranks ")} --by blame` }),
    quiet: true,
  });
}

/** The gain of the job, by replay; where that is not known, only a bound. */
function whatIfs(host, app, job) {
  const rows = new Table(job.whatif).records().map((row, _index) => ({ ...row, _index }));
  host.append(el("h3", {}, "What if"));
  showTable(host, app, {
    label: "What-ifs",
    columns: [
      { name: "what", text: true, minWidth: 200 },
      ...["gain_ns", "lo_ns", "hi_ns", "gain_pct", "bound_ns", "model_error_pct"].map((name) => ({ name })),
      { name: "note", text: true, minWidth: 160 },
    ],
    rows,
    enter: ({ command }) => copy(command, command),
    enterHelp: "click or Enter: copies its command",
    quiet: true,
  });
  host.append(el("ul", { class: "verdict" }, ...job.notes.map((text) => el("li", {}, multiline(text)))));
}
