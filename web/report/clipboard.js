// Copies for the reader: a table as CSV (RFC 4180), and command lines.
import { el } from "./text.js";

/** One field: in quotes where it holds a comma, a quote or the end of a line. */
function field(value) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A table as CSV, with its names in the first line. */
export function csv(names, rows) {
  const lines = [names, ...rows].map((row) => row.map(field).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

/** `word` as a POSIX shell takes it. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

/** Put `text` on the clipboard and say so in the page's status line. */
export async function copy(text, what) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copySelected(text);
  }
  announce(done ? `${what} copied` : `${what} could not be copied: the browser forbids it`);
}

/** The way of browsers that have no clipboard for files. */
function copySelected(text) {
  const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

export function announce(text) {
  document.getElementById("status").textContent = text;
}
