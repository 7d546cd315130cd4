// What to change: every rule that fires, with the time at stake and what that rests on.
import { encodeText } from "../state.js";
import { el, multiline, NULL, shown } from "../text.js";
import { percent, shortTime, time } from "../units.js";

export const findings = { id: "findings", title: "Findings", uses: [], render };

/** Whose finding it is, where there are several. */
export const rankOf = (app, { rank }) => (app.doc.meta.ranks.length > 1 ? `Rank ${rank}: ` : null);

/** The time at stake, as an interval, and the share of the rank's recording that it is at most. */
export function range(app, { rank, lo_ns: lo, hi_ns: hi }) {
  if (hi === null || hi === undefined) return "";
  const whole = app.doc.bounds.find((bound) => bound.rank === rank)?.window_ns;
  const share = whole ? ` (at most ${percent((100 * hi) / whole)})` : "";
  if (lo === hi) return `gains ${shortTime(hi)}${share}`;
  return `gains ${lo ? shortTime(lo) : "0"} to ${shortTime(hi)}${share}`;
}

function render(host, app) {
  host.append(el("h2", {}, "Findings"));
  host.append(el("p", { class: "hint" }, "Of the whole recording, whatever is selected. Times at stake overlap: do not add them up."));
  const of = (status) => app.doc.findings.filter((found) => found.status === status);
  const fires = of("fires");
  if (!fires.length) host.append(el("p", { class: "empty" }, "No rule found anything to change."));
  host.append(...fires.map((found) => card(app, found)));
  for (const bound of app.doc.bounds ?? []) host.append(el("p", { class: "bound" }, boundText(bound)));
  const unknown = of("unknown");
  if (!unknown.length) return;
  host.append(el("h3", {}, "What the recording does not tell"));
  const items = unknown.map((found) =>
    el("li", {}, el("strong", {}, shown(found.title)), ": ", shown(found.needs ?? found.finding)));
  host.append(el("ul", { class: "unknown" }, ...items));
}

function boundText({ rank, window_ns, bound_ns }) {
  const share = window_ns ? ` (${percent((100 * bound_ns) / window_ns)})` : "";
  return `Rank ${rank}: all together gain at most ${time(bound_ns)} of ${time(window_ns)}${share}.`;
}

function card(app, found) {
  const facts = [
    ["time at stake", range(app, found) || NULL],
    ["expected", time(found.expected_ns)],
    ["at most because", found.limit],
    ["where", found.shown],
    ["do", found.remedy],
    ["evidence", found.evidence],
  ].filter(([, value]) => value);
  const rows = facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, multiline(shown(value)))));
  const line = found.source && el("button", { type: "button", class: "link", click: () => openLine(app, found.source) }, "What ran for this line");
  return el("article", { class: `card ${found.severity}`, "data-rule": found.rule, "data-lo": found.lo_ns, "data-hi": found.hi_ns },
    el("h3", {}, el("span", { class: "severity" }, shown(found.severity)), " ", rankOf(app, found), shown(found.title)),
    el("p", {}, multiline(shown(found.finding))),
    el("dl", {}, ...rows), line || null);
}

/** The ops of a line, or the idle time that it has to do with. */
function openLine(app, source) {
  for (const [page, table] of [["ops", app.cube.table], ["idle", app.table("idle")]]) {
    const texts = table.column("source").texts ?? [];
    if (texts.includes(source)) {
      app.state.open(page, { source: encodeText(source, texts), by: page === "idle" ? "cause" : null });
      return;
    }
  }
  app.announce("No kernel and no idle time belongs to this line.");
}
