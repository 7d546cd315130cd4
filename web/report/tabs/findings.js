// Findings: every rule that fires, with the time at stake and its evidence.
import { encodeText } from "../state.js";
import { el, multiline, NULL, shown } from "../text.js";
import { percent, shortTime, time } from "../units.js";

export const findings = { id: "findings", title: "Findings", uses: [], render };

const MOST_BOUNDS = 8;

export const capital = (text) => text.slice(0, 1).toUpperCase() + text.slice(1);

/** Who has a finding, where there are several; its numbers are of the rank with the most. */
export function rankOf(app, { rank, ranks }) {
  if (app.doc.meta.ranks.length < 2) return null;
  return ranks.length > 1 ? `Ranks ${runs(ranks)}, most in ${rank}: ` : `Rank ${rank}: `;
}

/** Numbers in order as text: `0-2, 5`. */
function runs(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found[found.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(", ");
}

/** The gain of a remedy and its whole: from least to most, or where nothing is sure the expected one. */
export function range(app, { rank, lo_ns: lo, hi_ns: hi, expected_ns: expected }) {
  if (hi === null || hi === undefined) return "";
  const bound = app.doc.bounds.find((each) => each.rank === rank);
  const whole = bound ? bound.devices * bound.window_ns : 0;
  const several = bound?.devices > 1 ? `, sum of ${bound.devices} devices` : "";
  const of = whole ? `, of the ${shortTime(whole)} recorded${several}` : "";
  const text = (gain) => shortTime(gain) + (whole ? ` (${percent((100 * gain) / whole)})` : "");
  if (lo === hi) return `gains ${text(hi)}${of}`;
  if (lo) return `gains ${shortTime(lo)} to ${text(hi)}, expected ${text(expected)}${of}`;
  return `${expected ? `expected ${text(expected)}` : "nothing is sure"}, at most ${text(hi)}${of}`;
}

/** Why there is no finding. */
export const nothingFound = (app) =>
  app.doc.bounds?.length ? "No rule found anything to change." : "Neither work of a device nor an op was recorded, so there is nothing to advise.";

function render(host, app) {
  host.append(el("h2", {}, "Findings"));
  host.append(el("p", { class: "hint" }, "These are of the whole recording, whatever is selected. Times at stake overlap: do not add them up."));
  const of = (status) => app.doc.findings.filter((found) => found.status === status);
  const fires = of("fires");
  if (!fires.length) host.append(el("p", { class: "empty" }, nothingFound(app)));
  host.append(...fires.map((found) => card(app, found)));
  host.append(...boundTexts(app.doc.bounds ?? []).map((text) => el("p", { class: "bound" }, text)));
  const unknown = of("unknown");
  if (!unknown.length) return;
  host.append(el("h3", {}, "Unknown from this recording"));
  const items = unknown.map((found) =>
    el("li", {}, el("strong", {}, shown(found.title)), ": ", shown(found.needs ?? found.finding)));
  host.append(el("ul", { class: "unknown" }, ...items));
}

/** The gain of all remedies together, of each rank; of many ranks only the least and the most. */
function boundTexts(bounds) {
  if (bounds.length <= MOST_BOUNDS) return bounds.map(boundText);
  const sorted = [...bounds].sort((a, b) => a.bound_ns / a.window_ns - b.bound_ns / b.window_ns);
  const between = `${bounds.length - 2} more ranks lie between these two.`;
  return [boundText(sorted[0]), boundText(sorted[sorted.length - 1]), between];
}

function boundText({ rank, devices, window_ns, bound_ns, known_pct }) {
  if (bound_ns === null) {
    return `Rank ${rank}: what all together gain at most is not known: FLOPs and bytes are known for ${Math.round(known_pct)} % of the time of kernels.`;
  }
  const share = window_ns ? ` (${percent((100 * bound_ns) / window_ns)})` : "";
  const place = devices > 1 ? ", on each device" : "";
  return `Rank ${rank}: all together gain at most ${time(bound_ns)} of ${time(window_ns)} recorded${place}${share}.`;
}

function card(app, found) {
  const facts = [
    ["time at stake", range(app, found) || NULL],
    ["in other ranks", found.ranks?.length > 1 && found.hi_ns ? `at most ${time(found.least_ns)} to ${time(found.hi_ns)}` : null],
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
