// The document in the page: base64, gzip, JSON; and its tables, column by column.

/** The document of the page. */
export async function readDocument() {
  const text = document.getElementById("document").textContent.trim();
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** A column: a plain array, or distinct texts with the number of each row's. */
export class Column {
  constructor(raw, rows) {
    this.isText = raw !== undefined && !Array.isArray(raw);
    this.texts = this.isText ? raw.texts : null;
    this.shown = this.isText ? (raw.shown ?? raw.texts) : null;
    this.ids = this.isText ? Int32Array.from(raw.ids) : null;
    this.values = this.isText ? null : (raw ?? new Array(rows).fill(null));
  }

  /** How a text of the column is to be shown. */
  display(text) {
    if (!this.displays) this.displays = new Map(this.isText ? this.texts.map((each, id) => [each, this.shown[id]]) : []);
    return this.displays.get(text) ?? text;
  }

  at(row) {
    if (!this.isText) return this.values[row];
    const id = this.ids[row];
    return id < 0 ? null : this.texts[id];
  }
}

/** A table of the document; a column that it lacks is null in every row. */
export class Table {
  constructor(raw) {
    this.rows = raw?.rows ?? 0;
    this.raw = raw?.columns ?? {};
    this.made = new Map();
  }

  get names() {
    return Object.keys(this.raw);
  }

  has(name) {
    return name in this.raw;
  }

  column(name) {
    if (!this.made.has(name)) this.made.set(name, new Column(this.raw[name], this.rows));
    return this.made.get(name);
  }

  at(name, row) {
    return this.column(name).at(row);
  }

  /** All row numbers. */
  all() {
    return Array.from({ length: this.rows }, (_, row) => row);
  }

  /** The row numbers where `keep` holds. */
  where(keep) {
    return this.all().filter(keep);
  }

  /** One row as an object. */
  record(row) {
    return Object.fromEntries(this.names.map((name) => [name, this.at(name, row)]));
  }

  records(rows = this.all()) {
    return rows.map((row) => this.record(row));
  }

  /** The distinct values of a column, numbers first, in order; null is left out. */
  distinct(name) {
    const found = new Set();
    for (let row = 0; row < this.rows; row += 1) found.add(this.at(name, row));
    found.delete(null);
    const values = [...found];
    const numbers = values.filter((value) => typeof value === "number").sort((a, b) => a - b);
    return [...numbers, ...values.filter((value) => typeof value !== "number").sort()];
  }
}
