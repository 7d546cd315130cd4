// Text of a recording, made fit to be seen. Nothing here or elsewhere makes HTML of it: what a
// trace says becomes text nodes and titles.

const SHOWN = 300;
const TITLE = 2000;
export const NULL = "\u2013";
export const NONE = "(none)";

// The characters that Python calls printable, `str.isprintable`, as the tool's own tables have it.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escaped(char) {
  const code = char.codePointAt(0);
  if (char in NAMED) return NAMED[char];
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\U${code.toString(16).padStart(8, "0")}`;
}

/** `text` on one line, with escapes for what is not to be seen: control and bidi characters. */
export function clean(text) {
  return text.replace(HIDDEN, escaped);
}

function cut(text, limit) {
  if (text.length <= limit) return clean(text);
  const head = Math.floor(limit * 0.6);
  const tail = limit - head - 1;
  return `${clean(text.slice(0, head))}\u2026${clean(text.slice(-tail))}`;
}

/** A text as shown: at most 300 characters of it, its middle left out. */
export function shown(value) {
  return value === null || value === undefined ? NULL : cut(String(value), SHOWN);
}

/** The title of an element: at most 2,000 characters. */
export function titled(value) {
  return value === null || value === undefined ? "" : cut(String(value), TITLE);
}

/**
 * An element. Attributes that are functions become listeners; children are nodes or text.
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {...(Node|string|null|false|undefined)} children
 */
export function el(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

/** The same of a picture. */
export function svg(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Lines of text as lines, each without what is not to be seen. */
export function multiline(text, limit = 20000) {
  return text.slice(0, limit).split("\n").map(clean).join("\n");
}
