// A step on other devices: a bar for each from 0, with its interval, the recorded one marked.
import { el, multiline, NULL, shown } from "./text.js";
import { rate, timeScale } from "./units.js";

/** @param {{step: number|null, level: number, rows: any[]}} doc */
export function elsewhere(doc) {
  const most = Math.max(1, ...doc.rows.map(({ step_ns, hi_ns }) => Math.max(step_ns ?? 0, hi_ns ?? 0)));
  const unit = timeScale(most);
  const form = (ns) => rate(ns / unit.size);
  const share = (ns) => `${(100 * ns) / most}%`;
  const rows = doc.rows.map((row) => {
    const { device, step_ns, lo_ns, hi_ns, recorded, why } = row;
    const known = lo_ns !== null;
    const bar = step_ns !== null && el("span", { class: recorded ? "span recorded" : "span" });
    if (bar) bar.style.width = share(step_ns);
    const whisker = el("span", { class: "whisker" });
    if (known) {
      whisker.style.left = share(lo_ns);
      whisker.style.width = share(hi_ns - lo_ns);
    }
    const range = known && !recorded ? `${form(lo_ns)} to ${form(hi_ns)}` : recorded ? "recorded" : NULL;
    return el("tr", { class: recorded ? "recorded" : null, title: why ? shown(why) : null },
      el("th", { scope: "row" }, shown(device)),
      el("td", { class: "number" }, step_ns === null ? NULL : form(step_ns)),
      el("td", { class: "number" }, range),
      el("td", { class: "room" }, known ? el("span", { class: "track" }, bar, recorded ? null : whisker) : el("span", { class: "hint" }, "nothing can be said: see below")));
  });
  const head = el("tr", {}, ...["device", `a step, ${unit.label}`, `${doc.level} of 100 lie in, ${unit.label}`].map((name) => el("th", { scope: "col" }, name)), el("td"));
  const reasons = doc.notes.map((note) => el("li", {}, multiline(note)));
  return el("div", { class: "elsewhere" },
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)),
    reasons.length ? el("details", {}, el("summary", {}, "What is not known, and what was assumed"), el("ul", {}, ...reasons)) : null);
}
