// The parts of time and memory: a bar for each part, all on one scale.
import { el, shown } from "../report/text.js";

const MOST = 10;
/** The longest bar of where a drag began has this share of the width, so that bars can grow. */
const SHARE = 0.6;

export class Bars {
  /**
   * @param {string} title
   * @param {{name: string, tone: string, values: number[]}[]} parts  the largest first
   * @param {(value: number) => string} text
   * @param {string} note
   */
  constructor(title, parts, text, note) {
    this.text = text;
    this.parts = parts.length > MOST ? [...parts.slice(0, MOST - 1), others(parts.slice(MOST - 1))] : parts;
    this.rows = this.parts.map(({ name, tone }) => {
      const bar = el("span", { class: "bar" });
      bar.style.setProperty("--tone", `var(${tone})`);
      const value = el("td", { class: "number" });
      const share = el("td", { class: "number" });
      return { bar, value, share, node: el("tr", {}, el("th", { scope: "row" }, shown(name)), value, share, el("td", { class: "room" }, bar)) };
    });
    const head = el("tr", {}, ...["part", "value", "share"].map((name) => el("th", { scope: "col" }, name)), el("td"));
    this.node = el("section", { class: "bars" }, el("h2", {}, title), el("table", {}, el("thead", {}, head), el("tbody", {}, ...this.rows.map(({ node }) => node))), el("p", { class: "hint" }, note));
  }

  largest(at) {
    return Math.max(...this.parts.map(({ values }) => values[at]));
  }

  /** Show a place of the columns; `from` is where the drag began. */
  show(at, from) {
    const scale = Math.max(this.largest(at), this.largest(from) / SHARE) || 1;
    const total = this.parts.reduce((sum, { values }) => sum + values[at], 0) || 1;
    this.parts.forEach(({ values }, number) => {
      const { bar, value, share } = this.rows[number];
      bar.style.width = `${(100 * values[at]) / scale}%`;
      bar.dataset.value = values[at];
      value.textContent = this.text(values[at]);
      share.textContent = `${((100 * values[at]) / total).toFixed(1)} %`;
    });
  }
}

function others(parts) {
  const values = parts[0].values.map((_, at) => parts.reduce((sum, part) => sum + part.values[at], 0));
  return { name: `${parts.length} more`, tone: "--idle-5", values };
}
