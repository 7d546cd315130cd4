// Why devices did nothing: the parts of idle time, summed.
import { grouped, total } from "../cube.js";
import { quoted } from "../clipboard.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, NONE } from "../text.js";
import { percent, time } from "../units.js";
import { choice } from "./breakdown.js";


const AXES = ["cause", "group", "source", "op", "layer", "call", "thread", "note", "step", "device", "rank"];
const ENTERS = {
  cause: "click or Enter: its lines",
  source: "click or Enter: its ops",
  op: "click or Enter: its causes",
  layer: "click or Enter: its causes",
};
const BY = ["rank", "step", "layer", "op", "source", "cause"];

export const idle = { id: "idle", title: "Idle", uses: BY, render };

function render(host, app) {
  host.append(el("h2", {}, "Idle"));
  const table = app.table("idle");
  const rows = app.chosen("idle", BY);
  if (!table.rows) {
    const words = app.doc.meta.has_gpu ? "No device was idle." : "The recording has no GPU activity, so nothing of it is idle time.";
    host.append(el("p", { class: "empty" }, words));
    return;
  }
  const whole = total(table, rows, "time_ns") ?? 0;
  host.append(el("p", {}, `${time(whole)} in which a device did nothing${ofRecorded(app, whole)}.`));
  const axis = AXES.includes(app.state.get("by")) ? app.state.get("by") : "cause";
  app.view = showTable(host, app, {
    label: "Idle time",
    columns: columnsOf(axis),
    rows: groupsOf(table, rows, axis, whole),
    sort: "time_ns",
    totals: (data) => sums(data, whole),
    enter: axis in ENTERS ? (row) => enter(app, axis, row) : null,
    enterHelp: ENTERS[axis] ?? null,
    command: () => command(app, axis),
    tools: [choice("by", axis, AXES.filter((name) => table.has(name)).map((name) => [name, name]), (by) => app.state.go({ by, sort: null }))],
  });
}

/** The share of what was recorded, where nothing but a rank is selected. */
function ofRecorded(app, whole) {
  const chosen = app.state.selection();
  if (chosen.some(([name]) => name !== "rank")) return "";
  const rank = app.state.get("rank");
  const own = (app.doc.recorded ?? []).filter((each) => rank === null || String(each.rank) === rank);
  const window = own.reduce((sum, { window_ns }) => sum + window_ns, 0);
  return window ? `, ${percent((100 * whole) / window)} of ${time(window)} recorded` : "";
}

function columnsOf(axis) {
  const keys = axis === "cause" ? ["group", "cause"] : [axis];
  const words = { group: "whose", cause: "cause" };
  return [
    ...keys.map((name) => ({ name, text: true, header: words[name] ?? name, minWidth: 160 })),
    { name: "count", help: "intervals" },
    { name: "time_ns", help: "in which a device did nothing" },
    { name: "share_pct", help: "of the idle time that is selected" },
  ];
}

function groupsOf(table, rows, axis, whole) {
  return [...grouped(table, rows, axis)].map(([key, own], index) => {
    const time_ns = total(table, own, "time_ns");
    return {
      _index: index,
      ...(axis === "cause" ? { group: table.at("group", own[0]) } : {}),
      [axis]: String(key),
      count: total(table, own, "count"),
      time_ns,
      share_pct: whole ? (100 * time_ns) / whole : null,
    };
  });
}

function sums(data, whole) {
  const of = (name) => data.reduce((sum, row) => sum + row[name], 0);
  return { count: of("count"), time_ns: of("time_ns"), share_pct: whole ? (100 * of("time_ns")) / whole : null };
}

function enter(app, axis, row) {
  if (axis === "cause") app.state.go({ cause: row.cause, by: "source" });
  else if (["source", "op", "layer"].includes(axis) && row[axis] !== NONE) {
    const { texts } = app.table("idle").column(axis);
    app.state.go({ [axis]: encodeText(row[axis], texts), by: axis === "source" ? "op" : "cause" });
  }
}

function command(app, axis) {
  const other = app.state.selection().map(([name]) => name).filter((name) => name !== "rank");
  if (other.length || app.state.get("q")) return { reason: `no command: idle has no option for ${other[0] ?? "a search"}` };
  const rank = app.state.get("rank");
  const by = axis === "cause" ? "group,cause" : axis;
  const line = app.doc.meta.command.replace(" prof ", " idle ");
  return { text: `${line} --by ${quoted(by)}${rank === null ? "" : ` --rank ${rank}`}` };
}
