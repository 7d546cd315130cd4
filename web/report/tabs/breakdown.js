// Ops, kernels, layers, lines and ranges: one table each, and the way from one to the next.
import { grouped, total } from "../cube.js";
import { profCommand } from "../command.js";
import { measureGroups } from "../measures.js";
import { encodeText } from "../state.js";
import { showTable } from "../table.js";
import { el, NONE } from "../text.js";

/** The axes of `prof`: the column of the sums, and the page where it stands. */
const AXES = {
  name: { column: "kernel", page: "kernels", word: "kernel" },
  op: { column: "op", page: "ops", word: "op" },
  signature: { column: "signature", page: "ops", word: "signature" },
  category: { column: "category", page: "kernels", word: "category", plural: "categories" },
  layer: { column: "layer", page: "layers", word: "layer" },
  source: { column: "source", page: "lines", word: "line" },
  range: { column: "range", page: "ranges", word: "range" },
};
/** From a kernel to its op, to the layer, to the line. */
const WAY = ["name", "op", "layer", "source"];
/** The columns whose texts are long. */
const WIDE = ["kernel", "signature"];
const DIRECTIONS = ["forward", "backward"];
export function breakdownPage(id, title, axes, lacks) {
  return { id, title, render: (host, app) => new Breakdown(app, id, axes, lacks).render(host, title) };
}

class Breakdown {
  constructor(app, id, axes, lacks) {
    this.app = app;
    this.axes = axes;
    this.lacks = lacks;
    this.axis = axes.includes(app.state.get("by")) ? app.state.get("by") : axes[0];
    this.column = AXES[this.axis].column;
    this.depth = Number(app.state.get("depth")) || null;
    this.sided = app.state.get("sides") === "1";
    this.rows = app.rows();
    this.target = this.chosenTarget();
  }

  render(host, title) {
    host.append(el("h2", {}, title));
    if (this.lacks && !this.known()) host.append(el("p", { class: "empty" }, this.lacks));
    this.app.view = showTable(host, this.app, {
      label: title,
      columns: this.columns(),
      rows: this.groups(),
      sort: "time_ns",
      totals: (data) => this.measured([data.flatMap((row) => row._rows)])[0],
      enter: this.target ? (row) => this.enter(row) : null,
      enterHelp: this.target ? `click or Enter: its ${AXES[this.target].page}` : null,
      command: (sort) => this.command(sort),
      tools: this.tools(),
      empty: "Nothing of the selection.",
    });
  }

  /** Whether any row has a value to sum by. */
  known() {
    const { ids } = this.app.cube.table.column(this.column);
    return ids === null || ids.some((id) => id >= 0);
  }

  groups() {
    const groups = grouped(this.app.cube.table, this.rows, this.column, this.depth);
    const keys = [...groups.keys()];
    return this.measured([...groups.values()]).map((measures, index) => ({
      _index: index,
      _rows: groups.get(keys[index]),
      [this.column]: keys[index],
      ...measures,
    }));
  }

  /** The columns of each of these lists of rows. */
  measured(lists) {
    const { cube } = this.app;
    const whole = total(cube.table, this.rows, "time_ns") ?? 0;
    const found = measureGroups(cube, cube.groupOf(lists), lists.length, whole);
    if (!this.sided) return found;
    return found.map((measures, index) => ({ ...measures, ...this.sides(lists[index]) }));
  }

  sides(rows) {
    const { table } = this.app.cube;
    const of = (side) => rows.filter((row) => table.at("direction", row) === side);
    return Object.fromEntries(DIRECTIONS.map((side) => [`${side}_ns`, total(table, of(side), "time_ns") ?? 0]));
  }

  columns() {
    const own = this.app.cube.table.column(this.column);
    const key = { name: this.column, text: true, grow: 8, minWidth: WIDE.includes(this.column) ? 360 : 200, display: (text) => (WIDE.includes(this.column) ? text.replace(/^void /, "") : own.display(text)) };
    const sides = this.sided
      ? DIRECTIONS.map((side) => ({ name: `${side}_ns`, help: `time of it in ${side}` }))
      : [];
    const measures = this.app.cube.columns.map(({ name, help }) => ({ name, help }));
    measures.splice(3, 0, ...sides);
    return [key, ...measures];
  }

  tools() {
    const { state } = this.app;
    const tools = [];
    if (this.axes.length > 1) {
      tools.push(choice("by", this.axis, this.axes.map((axis) => [axis, AXES[axis].word]), (by) => state.go({ by, sort: null })));
    }
    if (["layer", "range"].includes(this.axis)) {
      const depths = [["", "whole path"], ...[1, 2, 3, 4, 5, 6].map((n) => [n, `${n} names`])];
      tools.push(choice("depth", this.depth ?? "", depths, (depth) => state.go({ depth })));
    }
    const ways = Object.keys(AXES).filter((axis) => axis !== this.axis && this.leads(axis)).map((axis) => [axis, `${AXES[axis].plural ?? `${AXES[axis].word}s`}`]);
    if (ways.length) tools.push(choice("Enter opens", this.target, ways, (to) => state.go({ to })));
    tools.push(this.sidesBox());
    return tools;
  }

  sidesBox() {
    const box = el("input", { type: "checkbox", id: "sides", change: () => this.app.state.go({ sides: box.checked ? "1" : null }) });
    box.checked = this.sided;
    return el("label", { for: "sides" }, box, "forward beside backward");
  }

  /** Whether summing the selection by this axis shows anything new. */
  leads(axis) {
    const column = this.app.cube.table.column(AXES[axis].column);
    return !this.app.state.get(AXES[axis].column) && column.texts?.length > 0;
  }

  chosenTarget() {
    const wanted = this.app.state.get("to");
    if (wanted && wanted in AXES && wanted !== this.axis && this.leads(wanted)) return wanted;
    const from = WAY.indexOf(this.axis);
    const way = [...WAY.slice(from + 1), ...WAY.slice(0, Math.max(0, from)), "category"];
    return way.find((axis) => axis !== this.axis && this.leads(axis)) ?? null;
  }

  enter(row) {
    const { table } = this.app.cube;
    const key = row[this.column];
    const alone = ["layer", "range"].includes(this.column) && !this.depth && key !== NONE;
    const { page } = AXES[this.target];
    this.app.state.open(page, { [this.column]: encodeText(key, table.column(this.column).texts ?? [], alone), by: this.target });
  }

  command(sort) {
    const filters = [...this.app.state.values].filter(([name]) => name.startsWith("f."));
    const own = `f.${this.column}`;
    const others = filters.filter(([name]) => name !== own).map(([name]) => name.slice(2));
    const words = [this.app.state.get("q"), this.app.state.get(own)].filter(Boolean);
    const downwards = sort && !sort.startsWith("+") && sort === this.column;
    const sides = DIRECTIONS.map((side) => `${side}_ns`);
    const other = [
      ...others,
      words.length > 1 && "two searches",
      (downwards || sides.includes(sort?.replace("+", ""))) && "this order",
    ].filter(Boolean);
    return profCommand(this.app, {
      axis: this.axis,
      depth: this.depth,
      sort: sort?.replace(/^\+(?=kernel$|op$|layer$|source$|range$|signature$|category$)/, ""),
      top: this.app.view?.left().length ?? 1,
      contains: words[0],
      other: other.join(" and "),
    });
  }
}

/** A list to choose from, with its name before it. */
export function choice(label, chosen, options, change) {
  const list = el(
    "select",
    { change: () => change(list.value || null) },
    ...options.map(([value, words]) => el("option", { value, selected: String(value) === String(chosen) }, words)),
  );
  return el("label", {}, label, list);
}

/** The place in a list that the fragment names, or the first. */
export function placeOf(app, list) {
  const place = Number(app.state.get("window"));
  return Number.isInteger(place) && place > 0 && place < list.length ? place : 0;
}
