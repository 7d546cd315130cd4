// One bar of a step: what the device did in it, and why it did nothing.
import { el, shown } from "../text.js";
import { explained } from "../glossary.js";
import { rate, time, timeScale } from "../units.js";

const TONES = {
  compute_matrix: "--matrix",
  compute_other: "--compute",
  comm_exposed: "--comm",
  comm_copy: "--comm",
  copies: "--copies",
  host_ops: "--compute",
  host_rest: "--idle-1",
};
const IDLE = "idle:";
const IDLE_TONES = 6;

/** The colours of kernels, wherever they are shown. */
export const KINDS = [
  ["--matrix", "matrix products, convolutions, attention"], ["--compute", "other kernels and ops"],
  ["--comm", "communication"], ["--copies", "copies"],
];
const OF_CATEGORIES = {
  matmul: "--matrix", conv: "--matrix", attention: "--matrix", comm: "--comm", memcpy: "--copies", memset: "--copies",
};
export const toneOfCategory = (category) => OF_CATEGORIES[category] ?? "--compute";

/** The colour of a part; those of idle time go from dark to light, the largest first. */
function toneOf(part, place) {
  return TONES[part] ?? `--idle-${Math.min(place, IDLE_TONES - 1)}`;
}

/**
 * A bar of the parts of a step, or of all that was recorded, with its legend.
 * @param {object} app whose document says what the causes of idle time mean
 * @param {{part: string, label: string, time_ns: number}[]} parts sums over the windows
 * @param {number} windows how many windows they are of
 * @param {string} words what the bar is of
 */
export function partBar(app, parts, windows, words) {
  const whole = parts.reduce((sum, { time_ns }) => sum + time_ns, 0);
  const busy = parts.filter(({ part }) => !part.startsWith(IDLE));
  const idle = parts.filter(({ part }) => part.startsWith(IDLE)).sort((a, b) => b.time_ns - a.time_ns);
  const shownParts = [...busy, ...idle].filter(({ time_ns }) => time_ns > 0);
  let place = 0;
  const toned = shownParts.map((part) => ({ ...part, tone: toneOf(part.part, part.part.startsWith(IDLE) ? place++ : 0) }));
  const unit = timeScale(Math.max(0, ...toned.map(({ time_ns }) => time_ns / windows)));
  const entry = (part) => entryOf(part, whole, windows, unit, app.doc.meta.causes);
  return el("div", { class: "parts" },
    el("p", { class: "hint" }, `${words}: ${time(Math.round(whole / windows))}`),
    el("div", { class: "bar", "aria-hidden": "true" }, ...toned.map((part) => segment(part, whole, windows))),
    el("ul", { class: "legend" }, ...toned.map(entry)));
}

function exact({ label, time_ns }, windows) {
  const sum = `${time_ns.toLocaleString("en-US")} ns`;
  return windows > 1 ? `${label}: ${sum}, sum of ${windows} windows` : `${label}: ${sum}`;
}

function segment(part, whole, windows) {
  const node = el("div", { class: "segment", title: exact(part, windows) });
  node.style.background = `var(${part.tone})`;
  node.style.flexGrow = String(part.time_ns / whole);
  return node;
}

function entryOf(part, whole, windows, unit, causes) {
  const mark = el("span", { class: "mark" });
  mark.style.background = `var(${part.tone})`;
  const share = ((100 * part.time_ns) / whole).toFixed(1);
  return el("li", { title: exact(part, windows), "data-part": part.part, "data-ns": part.time_ns },
    mark, el("span", {}, ...explained(shown(part.label), causes)), " ", el("b", {}, `${share} %`), ` ${rate(part.time_ns / windows / unit.size)} ${unit.label}`);
}

/** The meaning of colours; a ring stands for itself. */
export function legend(entries) {
  const items = entries.map(([tone, words]) => {
    const mark = el("span", { class: tone === "ring" ? "mark ring" : "mark" });
    if (tone !== "ring") mark.style.background = `var(${tone})`;
    return el("li", {}, mark, words);
  });
  return el("ul", { class: "legend" }, ...items);
}
