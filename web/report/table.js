// Tables that sort, filter and add up, by mouse and by keyboard.
import {
  ColumnCalcsModule,
  EditModule,
  FilterModule,
  FormatModule,
  InteractionModule,
  ResizeColumnsModule,
  ResizeTableModule,
  SortModule,
  Tabulator,
} from "tabulator-tables";
import { textWidth } from "./chart.js";
import { copy, csv } from "./clipboard.js";
import { glossed } from "./glossary.js";
import { labelsOf } from "./names.js";
import { el, NULL, shown, titled } from "./text.js";
import { columnFormat, counted, integer } from "./units.js";

Tabulator.registerModule([
  ColumnCalcsModule, EditModule, FilterModule, FormatModule, InteractionModule,
  ResizeColumnsModule, ResizeTableModule, SortModule,
]);

const PRINTED = 300;
const HEADER_FONT = "600 14px system-ui, sans-serif";
const NAME_FONT = "14.08px system-ui, sans-serif";
/** How many lines of a cell a name may take before its middle is left out. */
const LINES = 2;
const SAMPLE = 40;

/**
 * @typedef {object} ColumnSpec
 * @property {string} name of the value in a row, and in the CSV
 * @property {boolean} [text] whether it is text
 * @property {string} [header] instead of the one that follows from the name
 * @property {string} [help] what it means
 * @property {(value: string) => string} [display] the text to be shown for a text, a shorter one
 * @property {(value: any, row: object) => Node} [cell] instead of the number or text
 */

/**
 * Show rows as a table.
 * @param {HTMLElement} host
 * @param {object} app
 * @param {object} spec
 * @param {string} spec.label what the table is, for those who cannot see it
 * @param {ColumnSpec[]} spec.columns
 * @param {object[]} spec.rows
 * @param {string} [spec.sort] name of the column that it is sorted by at first; `+name` rises
 * @param {(rows: object[]) => object} [spec.totals] the row below, of the rows that are left
 * @param {(row: object) => void} [spec.enter] go down from a row
 * @param {string} [spec.enterHelp] what that does
 * @param {(sort: string) => string|null} [spec.command] the command line that gives the same rows
 * @param {string} [spec.empty] what is said where there are none
 * @param {boolean} [spec.quiet] whether the fragment says nothing of it: the second of a page
 * @param {Node[]} [spec.tools] more in the bar above
 */
export function showTable(host, app, spec) {
  const view = new TableView(app, spec);
  host.append(view.bar, view.holder, view.paper);
  view.build();
  app.onLeave(() => view.table.destroy());
  return view;
}

class TableView {
  constructor(app, spec) {
    this.app = app;
    this.spec = spec;
    this.data = new WeakMap();
    this.labels = new Map();
    this.formats = new Map(spec.columns.filter((c) => !c.text).map((c) => [c.name, this.format(c)]));
    this.holder = el("div", { class: "table-holder" });
    this.paper = el("div", { class: "paper" });
    this.counter = el("span", { class: "counter", role: "status" });
    this.bar = this.toolbar();
  }

  note(changes) {
    if (!this.spec.quiet) this.app.state.note(changes);
  }

  recalled(name) {
    return this.spec.quiet ? null : this.app.state.get(name);
  }

  format(column) {
    let largest = 0;
    for (const row of this.spec.rows) {
      if (Math.abs(row[column.name]) > largest) largest = Math.abs(row[column.name]);
    }
    return columnFormat(column.name, largest);
  }

  header(column) {
    return column.header ?? this.formats.get(column.name)?.header ?? column.name;
  }

  toolbar() {
    const search = el("input", {
      type: "search",
      class: "search",
      placeholder: "search",
      "aria-label": `Search in ${this.spec.label}`,
      input: () => this.search(search.value),
    });
    search.value = this.recalled("q") ?? "";
    this.searchBox = search;
    const button = (words, run) => el("button", { type: "button", class: "tool", click: run }, words);
    const line = this.spec.command && button("Copy command", () => this.copyCommand());
    this.commandButton = line ?? null;
    return el(
      "div",
      { class: "toolbar" },
      ...(this.spec.tools ?? []),
      search,
      button("Copy CSV", () => copy(this.csv(), counted(this.left().length, "row"))),
      line,
      this.counter,
      this.spec.enterHelp && el("span", { class: "hint" }, this.spec.enterHelp),
    );
  }

  build() {
    if (this.spec.enter) this.holder.classList.add("enters");
    this.table = new Tabulator(this.holder, {
      data: this.spec.rows,
      columns: this.spec.columns.map((column) => this.definition(column)),
      layout: "fitColumns",
      maxHeight: "40rem",
      nestedFieldSeparator: false,
      columnDefaults: { headerSortTristate: false, resizable: "header" },
      placeholder: el("p", { class: "empty" }, this.spec.empty ?? "No row is left."),
      rowFormatter: (row) => this.dressRow(row),
      initialSort: this.initialSort(),
      initialHeaderFilter: this.initialFilters(),
      index: "_index",
    });
    this.table.on("tableBuilt", () => this.built());
    this.holder.addEventListener("keydown", (event) => this.key(event));
  }

  built() {
    this.ready = true;
    this.search(this.searchBox.value);
    this.count();
    this.table.on("dataFiltered", () => this.count());
    // Names have more room, or less.
    this.table.on("columnResized", () => this.table.redraw(true));
    this.table.on("dataSorted", (sorters) => this.noteSort(sorters));
    this.table.on("rowClick", (event, row) => this.spec.enter?.(row.getData()));
    this.polish();
    window.addEventListener("beforeprint", (this.print = () => this.printRows()));
    this.app.onLeave(() => window.removeEventListener("beforeprint", this.print));
    this.spec.onBuilt?.(this);
  }

  /** Attributes for screen readers that Tabulator leaves out. */
  polish() {
    this.holder.setAttribute("aria-label", this.spec.label);
    this.holder.setAttribute("aria-rowcount", String(this.spec.rows.length));
    // Rows can be reached, so what holds them need not be; no element may stand between in a grid.
    this.holder.querySelector(".tabulator-tableholder").removeAttribute("tabindex");
    this.rove();
  }

  definition(column) {
    const filter = this.recalled(`f.${column.name}`) ?? "";
    return {
      title: column.name,
      field: column.name,
      titleFormatter: () => this.headerNode(column),
      formatter: (cell) => this.cellNode(column, cell.getValue(), cell.getData(), cell.getColumn().getWidth()),
      hozAlign: column.text ? "left" : "right",
      headerHozAlign: column.text ? "left" : "right",
      headerSortStartingDir: column.text ? "asc" : "desc",
      sorter: (a, b, _x, _y, _column, dir) => compare(a, b, dir),
      // On a narrow screen a number is to be seen beside the name.
      minWidth: column.text ? Math.min(column.minWidth ?? 150, window.innerWidth * 0.45) : this.numberWidth(column),
      widthGrow: column.grow ?? (column.text ? 4 : 1),
      headerFilter: (_cell, _rendered, success) => this.filterBox(column, filter, success),
      headerFilterPlaceholder: column.text ? "contains" : "\u2265",
      headerFilterFunc: (wanted, value) => passes(wanted, value, this.formats.get(column.name)),
      ...(this.spec.totals ? this.totalOf(column) : {}),
    };
  }

  /** As wide as its widest number: a number that is cut is another number. */
  numberWidth(column) {
    const { form } = this.formats.get(column.name);
    const values = [...this.spec.rows, this.spec.totals?.(this.spec.rows) ?? {}].map((row) => row[column.name]);
    const texts = new Set(values.filter((value) => typeof value === "number").map((value) => form(value)));
    const header = textWidth(this.header(column), HEADER_FONT) + (column.name === this.spec.sort ? 26 : 12);
    return Math.ceil(Math.max(56, header, ...[...texts].map((text) => textWidth(text, HEADER_FONT) + 16)));
  }

  totalOf(column) {
    return {
      bottomCalc: (_values, data) => this.totals(data)[column.name] ?? null,
      bottomCalcFormatter: (cell) => this.totalNode(column, cell.getValue()),
    };
  }

  totals(data) {
    if (this.totalled !== data) {
      this.totalled = data;
      this.sums = this.spec.totals(data);
    }
    return this.sums;
  }

  totalNode(column, value) {
    if (column === this.spec.columns[0]) return el("span", {}, "total");
    if (column.text || value === null || value === undefined || value === "") return el("span");
    return el("span", {}, this.formats.get(column.name).form(value));
  }

  headerNode(column) {
    const button = el("button", { type: "button", class: "sort" }, shown(this.header(column)));
    return column.help ? glossed(button, column.help) : button;
  }

  /** The contents of a cell; without a width, on paper, names are whole. */
  cellNode(column, value, row, width = null) {
    if (column.cell) return column.cell(value, row);
    if (value === null || value === undefined) return el("span", { class: "null" }, NULL);
    if (!column.text) return el("span", {}, typeof value === "boolean" ? (value ? "yes" : "no") : this.formats.get(column.name).form(value));
    return el("span", { class: "name", title: titled(value) }, width === null ? shown(value) : this.labelsFor(column, width).get(value));
  }

  /** The label of each text of a column where it is this wide: no two are the same. */
  labelsFor(column, width) {
    const known = this.labels.get(column.name);
    if (known?.width === width) return known.made;
    const texts = this.spec.rows.map((row) => row[column.name]).filter((text) => typeof text === "string");
    const sample = texts.slice(0, SAMPLE).map((text) => text.slice(-SAMPLE)).join("");
    const line = Math.floor((width - 14) / (textWidth(sample, NAME_FONT) / Math.max(1, sample.length)));
    const made = shortened(texts, column.display, LINES * line - 3);
    this.labels.set(column.name, { width, made });
    return made;
  }

  filterBox(column, filter, success) {
    const header = this.header(column);
    const box = el("input", {
      type: "text",
      class: "filter",
      "aria-label": `Filter ${header}`,
      title: column.text ? "text that it contains" : `in ${header}: 5 is at least 5; <5, >5, =5, 1..5`,
      input: () => {
        this.note({ [`f.${column.name}`]: box.value });
        success(box.value);
      },
      // Tabulator would sort, or go to another cell.
      click: (event) => event.stopPropagation(),
      keydown: (event) => event.stopPropagation(),
    });
    box.value = filter;
    return box;
  }

  search(words) {
    this.note({ q: words });
    if (!this.ready) return;
    const wanted = words.toLowerCase();
    const names = this.spec.columns.filter((c) => c.text).map((c) => c.name);
    const found = (row) => names.some((name) => String(row[name] ?? "").toLowerCase().includes(wanted));
    if (wanted) this.table.setFilter(found);
    else this.table.clearFilter();
  }

  initialSort() {
    const sort = this.recalled("sort") ?? this.spec.sort;
    if (!sort) return [];
    const column = sort.replace(/^\+/, "");
    if (!this.spec.columns.some((each) => each.name === column)) return [];
    this.sorted = sort;
    const rises = sort.startsWith("+");
    return [{ column, dir: rises ? "asc" : "desc" }];
  }

  initialFilters() {
    const found = this.spec.columns.map(({ name }) => ({ field: name, value: this.recalled(`f.${name}`) }));
    return found.filter(({ value }) => value);
  }

  noteSort(sorters) {
    if (!sorters.length) return;
    const [{ field, dir }] = sorters;
    this.sorted = `${dir === "asc" ? "+" : ""}${field}`;
    this.note({ sort: this.sorted === this.spec.sort ? null : this.sorted });
  }

  /** The rows that the filters leave, sorted. */
  left() {
    return this.table.getRows("active").map((row) => row.getData());
  }

  count() {
    queueMicrotask(() => {
      const number = this.table.getRows("active").length;
      const all = this.spec.rows.length;
      this.counter.textContent = number === all ? counted(all, "row") : `${integer(number)} of ${counted(all, "row")}`;
      this.rove();
    });
  }

  csv() {
    const names = this.spec.columns.map((column) => column.name);
    return csv(names, this.left().map((row) => names.map((name) => row[name])));
  }

  copyCommand() {
    const line = this.spec.command(this.sorted ?? this.spec.sort ?? null);
    if (line.text) copy(line.text, line.text);
    else this.app.announce(line.reason);
  }

  /** One row can be reached by Tab, the others by the arrow keys from there. */
  dressRow(row) {
    const node = row.getElement();
    this.data.set(node, row.getData());
    if (!node.classList.contains("tabulator-calcs")) node.tabIndex = -1;
  }

  rove() {
    const rows = [...this.holder.querySelectorAll(".tabulator-tableholder .tabulator-row")];
    if (rows.length && !rows.some((row) => row.tabIndex === 0)) rows[0].tabIndex = 0;
  }

  key(event) {
    const row = event.target.closest?.(".tabulator-row");
    if (!row || row.classList.contains("tabulator-calcs")) return;
    const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (next) {
      event.preventDefault();
      row.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else if (event.key === "Enter" && event.target === row) {
      event.preventDefault();
      this.spec.enter?.(this.data.get(row));
    }
  }

  /** On paper: a plain table of the first rows. */
  printRows() {
    const { columns } = this.spec;
    const rows = this.left();
    const head = el("tr", {}, ...columns.map((c) => el("th", { scope: "col" }, this.header(c))));
    const body = rows.slice(0, PRINTED).map((row) =>
      el("tr", {}, ...columns.map((c) => el("td", { class: c.text ? null : "number" }, this.cellNode(c, row[c.name], row)))));
    const more = rows.length > PRINTED && el("p", {}, counted(rows.length - PRINTED, "more row"));
    this.paper.replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)), more || "");
  }
}

/** Labels of texts, made of what is to be shown for them; where that is one for several, of them. */
function shortened(texts, display, room) {
  if (!display) return labelsOf(texts, room);
  const shows = new Map([...new Set(texts)].map((text) => [text, display(text)]));
  const count = new Map();
  for (const show of shows.values()) count.set(show, (count.get(show) ?? 0) + 1);
  const own = new Map([...shows].map(([text, show]) => [text, count.get(show) > 1 ? text : show]));
  const made = labelsOf(own.values(), room);
  return new Map([...own].map(([text, show]) => [text, made.get(show)]));
}

/** Null comes last, whichever way the others are sorted. */
function compare(a, b, dir) {
  const none = (value) => value === null || value === undefined;
  if (none(a) || none(b)) return none(a) && none(b) ? 0 : none(a) === (dir === "asc") ? 1 : -1;
  if (typeof a === "string" || typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  return a - b;
}

/** Whether a value is what a filter asks for; numbers in the unit of the column's header. */
export function passes(wanted, value, format) {
  if (!wanted) return true;
  if (!format) return String(value ?? "").toLowerCase().includes(wanted.toLowerCase());
  if (value === null || value === undefined) return false;
  const number = Number(value) / format.size;
  const range = /^\s*(-?[\d.]+)\s*\.\.\s*(-?[\d.]+)\s*$/.exec(wanted);
  if (range) return number >= Number(range[1]) && number <= Number(range[2]);
  const found = /^\s*(<=|>=|<|>|=)?\s*(-?[\d.]+)\s*$/.exec(wanted);
  if (!found) return true;
  const limit = Number(found[2]);
  const tests = { "<": number < limit, "<=": number <= limit, ">": number > limit, "=": number === limit };
  return tests[found[1]] ?? number >= limit;
}
