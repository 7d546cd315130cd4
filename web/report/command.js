// The command line of `pyprof2 prof` that gives the rows of a table, or why there is none.
import { quoted } from "./clipboard.js";
import { SEPARATORS } from "./cube.js";
import { decoded } from "./selection.js";
import { NONE } from "./text.js";

const REGEX = { layer: "--layer", op: "--op", kernel: "--kernel", range: "--range" };
const LISTED = { direction: "--direction", category: "--category" };
const NUMBERED = { rank: "--rank", step: "--step" };

/**
 * @param {object} query axis, depth, sort, top, contains (of the axis's own column), other (filters
 *   that no option stands for)
 * @returns {{text?: string, reason?: string}}
 */
export function profCommand(app, query) {
  if (query.other) return { reason: `no command: prof has no option for ${query.other}` };
  const words = [`--by ${query.axis}`];
  if (query.depth) words.push(`--depth ${query.depth}`);
  for (const [name, value] of app.state.selection()) {
    const option = optionOf(app, name, value);
    if (!option) return { reason: `no command: prof has no option for this ${name}` };
    words.push(option);
  }
  const axis = query.axis === "name" ? "kernel" : query.axis;
  if (query.contains) {
    if (!(axis in REGEX) || app.state.get(axis)) {
      return { reason: `no command: prof has no option to search in ${axis}` };
    }
    // Without a capital any case fits, as in the table.
    words.push(`${REGEX[axis]} ${quoted(escaped(query.contains.toLowerCase()))}`);
  }
  if (query.sort && query.sort !== "time_ns") words.push(`--sort ${query.sort}`);
  words.push(`--top ${Math.max(1, query.top)}`);
  return { text: `${app.doc.meta.command} ${words.join(" ")}` };
}

function optionOf(app, name, value) {
  const { text, alone } = decoded(app, name, value);
  // A text that was cut for the page is not what the recording has.
  if (text.endsWith("\u2026")) return null;
  if (name in LISTED) return `${LISTED[name]} ${quoted(text)}`;
  if (name in NUMBERED) return /^-?\d+$/.test(text) ? `${NUMBERED[name]} ${text}` : null;
  if (!(name in REGEX) || text === NONE) return null;
  const below = alone || !SEPARATORS[name] ? "$" : `(${escaped(SEPARATORS[name])}|$)`;
  return `${REGEX[name]} ${quoted(cased(`^${escaped(text)}${below}`))}`;
}

/** Without a capital in it, prof lets any case fit; the selection does not. */
function cased(pattern) {
  return /\p{Lu}/u.test(pattern.replace(/\\./gu, "")) || !/\p{Ll}/u.test(pattern) ? pattern : `(?-i:${pattern})`;
}

/** `text` as a regular expression of Python that finds just it. */
function escaped(text) {
  return text.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");
}
