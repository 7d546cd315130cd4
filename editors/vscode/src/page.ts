/** The page in the panel. What a recording says becomes text nodes, never HTML. */
import type { Below, Breakdown, FromPage, Row, ToPage } from "./messages";

interface Crumb {
  name: string;
  below: Below;
}

declare function acquireVsCodeApi(): {
  postMessage(message: FromPage): void;
  getState(): { crumbs: Crumb[] } | undefined;
  setState(state: { crumbs: Crumb[] }): void;
};

const code = acquireVsCodeApi();
const crumbs: Crumb[] = code.getState()?.crumbs ?? [];
let rows: Row[] = [];
let asked = 0;
/** Whether a level without rows is left: what it was of may be gone. */
let leavesEmpty = true;

const title = element("p", "title");
const path = element("nav", "path");
path.setAttribute("aria-label", "what is shown");
const note = element("p", "note");
const list = element("ol", "rows");
const said = element("p", "said");
said.setAttribute("role", "status");
document.body.append(title, path, note, list, said);

window.addEventListener("message", ({ data }: MessageEvent<ToPage>) => {
  if (data.type === "changed") ask(true);
  else if (data.type === "here") mark(data.uri, data.line);
  else if (data.id === asked) show(data.breakdown);
});
document.addEventListener("keydown", pressed);
ask(true);

function ask(mayLeave: boolean): void {
  leavesEmpty = mayLeave;
  code.setState({ crumbs });
  code.postMessage({ type: "ask", id: ++asked, below: crumbs.at(-1)?.below ?? null });
}

function show(breakdown: Breakdown): void {
  if (breakdown.ok && breakdown.rows.length === 0 && crumbs.length > 0 && leavesEmpty) {
    crumbs.pop();
    ask(true);
    return;
  }
  const focused = list.contains(document.activeElement);
  rows = breakdown.rows;
  title.textContent = breakdown.text.replace(/^pyprof2: /, "");
  drawPath();
  note.textContent = breakdown.ok ? explained(breakdown) : "";
  list.replaceChildren(...rows.map(drawn));
  said.textContent = rows.length || !breakdown.ok ? "" : "Nothing below this was recorded.";
  if (focused) focus(0);
}

function explained({ ledger, memory_of }: Breakdown): string {
  const what = ledger === "device" ? "GPU time of a step" : "host time of a step";
  const memory = memory_of ? `; memory at the peak of ${memory_of}` : "";
  return `${what}, with all that is called, so rows can overlap${memory}`;
}

function drawPath(): void {
  const names = ["all files", ...crumbs.map(({ name }) => name)];
  path.replaceChildren(
    ...names.flatMap((name, at) => {
      const button = element("button", "crumb", name);
      button.addEventListener("click", () => up(at));
      if (at === names.length - 1) button.setAttribute("aria-current", "true");
      return at ? [element("span", "between", "›"), button] : [button];
    }),
  );
}

function drawn(row: Row, at: number): HTMLElement {
  const item = element("li", `row ${row.kind}`);
  item.tabIndex = at ? -1 : 0;
  item.title = row.name;
  const name = element("span", "name", `${row.stale ? "~" : ""}${row.name}`);
  const detail = element("span", "detail", row.detail);
  item.append(name, into(row, at), detail);
  item.append(...bar("time", row.time, row.time_pct));
  if (row.memory) item.append(...bar("memory", row.memory, row.memory_pct));
  item.addEventListener("mouseenter", () => light(row));
  item.addEventListener("mouseleave", () => light(undefined));
  item.addEventListener("focus", () => light(row));
  item.addEventListener("blur", () => light(undefined));
  item.addEventListener("click", () => open(row));
  item.addEventListener("dblclick", () => down(at));
  return item;
}

function into(row: Row, at: number): HTMLElement {
  const button = element("button", "into", "›");
  button.hidden = row.below === null;
  button.tabIndex = -1;
  button.setAttribute("aria-label", `what ${row.name} is made of`);
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    down(at);
  });
  return button;
}

/** A bar and its number; a share that is not known has no bar. */
function bar(kind: string, text: string, percent: number | null): HTMLElement[] {
  const whole = element("span", `bar ${kind}`);
  const part = element("span", "part");
  part.style.width = `${Math.min(100, percent ?? 0)}%`;
  whole.append(part);
  const share = percent === null ? "" : ` · ${percent.toFixed(1)} %`;
  return [whole, element("span", `number ${kind}`, `${text}${share}`)];
}

function light(row: Row | undefined): void {
  // A whole file is not marked: its row is as long as the file.
  const place = row && row.uri !== null && row.kind !== "file" ? placeOf(row, row.uri) : undefined;
  code.postMessage({ type: "light", place });
}

function open(row: Row): void {
  if (row.uri !== null) code.postMessage({ type: "open", place: placeOf(row, row.uri) });
}

function placeOf({ first, last }: Row, uri: string) {
  return { uri, first, last };
}

function down(at: number): void {
  const row = rows[at];
  if (!row?.below) return;
  crumbs.push({ name: row.name, below: row.below });
  ask(false);
}

function up(depth: number): void {
  crumbs.splice(depth);
  ask(true);
}

/** Mark the rows of a line: of the smallest range that it is in. */
function mark(uri: string, line: number): void {
  const sizes = rows.map((row) => (row.uri === uri ? sizeAt(row, line) : Infinity));
  const smallest = Math.min(...sizes);
  for (const [at, item] of [...list.children].entries()) {
    const isHere = sizes[at] === smallest && smallest < Infinity;
    item.classList.toggle("here", isHere);
    if (isHere) item.scrollIntoView({ block: "nearest" });
  }
}

function sizeAt({ kind, first, last }: Row, line: number): number {
  if (kind === "file") return Number.MAX_VALUE;
  return first <= line && line <= last ? last - first : Infinity;
}

function pressed(event: KeyboardEvent): void {
  const at = [...list.children].indexOf(document.activeElement as Element);
  if (event.key === "ArrowDown") focus(at + 1);
  else if (event.key === "ArrowUp") focus(Math.max(0, at - 1));
  else if (event.key === "ArrowRight") down(at);
  else if ((event.key === "ArrowLeft" || event.key === "Backspace") && crumbs.length)
    up(crumbs.length - 1);
  else if (event.key === "Enter" && at >= 0 && rows[at]) open(rows[at]);
  else return;
  event.preventDefault();
}

function focus(at: number): void {
  (list.children[at] as HTMLElement | undefined)?.focus();
}

function element(name: string, style: string, text = ""): HTMLElement {
  const made = document.createElement(name);
  made.className = style;
  made.textContent = text;
  return made;
}
