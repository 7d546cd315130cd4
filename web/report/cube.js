// The sums of the document: chosen, grouped, and turned into the columns of `pyprof2 prof`.
import { Table } from "./document.js";
import { decodeText } from "./state.js";
import { NONE } from "./text.js";

/** How names follow one another in a path. */
export const SEPARATORS = { layer: ".", range: " / " };

/** The key of a value: null has a name too. */
export const keyOf = (value) => (value === null ? NONE : value);

const SHARED = "(shared: ";
const LAUNCHED = "(graph launched in ";

/** The ops, layers or lines that a value names: of a kernel of compiled code there may be several. */
export function ownersOf(value) {
  if (typeof value !== "string" || !value.startsWith(SHARED)) return [value];
  let path = "";
  return value.slice(SHARED.length, -1).split(", ").map((owner) => {
    // The first of the lines of a file has its name, the others are numbers.
    if (/^\d+$/.test(owner)) return `${path}:${owner}`;
    path = owner.slice(0, owner.lastIndexOf(":"));
    return owner;
  });
}

/** Whether a value belongs to what was chosen: it, of a path what lies below it, and of several one. */
export function chooser(name, { text, alone }) {
  const separator = SEPARATORS[name];
  const isOne = (value) => String(keyOf(value)) === text || (separator && !alone && (value ?? "").startsWith(text + separator));
  return (value) => isOne(value) || ownersOf(value).some(isOne);
}

/** The rows of a table that a selection leaves; names that the table lacks choose nothing. */
export function chosenRows(table, selection) {
  let rows = table.all();
  for (const [name, value] of selection) {
    if (!table.has(name)) continue;
    const column = table.column(name);
    const belongs = chooser(name, decodeText(value, column.texts ?? []));
    if (column.isText) {
      const found = column.texts.map((text) => belongs(text));
      const none = belongs(null);
      rows = rows.filter((row) => (column.ids[row] < 0 ? none : found[column.ids[row]]));
    } else {
      rows = rows.filter((row) => belongs(column.values[row]));
    }
  }
  return rows;
}

/** The first `depth` names of a path. */
function cutPath(name, depth) {
  const separator = SEPARATORS[name];
  if (!separator || !depth) return (text) => text;
  return (text) => {
    // A replayed kernel that nothing explains has the key of its graph's launch.
    if (text.startsWith(LAUNCHED)) return `${LAUNCHED}${cutPath(name, depth)(text.slice(LAUNCHED.length, -1))})`;
    const cut = new Set(ownersOf(text).map((owner) => owner.split(separator).slice(0, depth).join(separator)));
    return cut.size === 1 ? [...cut][0] : `${SHARED}${[...cut].join(", ")})`;
  };
}

/** Rows by the key that they have in a column, in order of first appearance. */
export function grouped(table, rows, name, depth = null) {
  const column = table.column(name);
  const groups = new Map();
  const cut = cutPath(name, depth);
  const keys = column.isText ? column.texts.map(cut) : null;
  for (const row of rows) {
    const key = column.isText
      ? keyOf(column.ids[row] < 0 ? null : keys[column.ids[row]])
      : keyOf(column.values[row]);
    const group = groups.get(key);
    if (group) group.push(row);
    else groups.set(key, [row]);
  }
  return groups;
}

/** The sum of a column over rows; null where no row knows a value. */
export function total(table, rows, name) {
  const { values } = table.column(name);
  let sum = null;
  for (const row of rows) {
    if (values[row] !== null) sum = (sum ?? 0) + values[row];
  }
  return sum;
}

/** Sets of rows of the cube, the members of one after those of the other. */
class Sets {
  constructor({ first, rows }) {
    this.first = Int32Array.from(first);
    this.rows = Int32Array.from(rows);
  }

  get length() {
    return this.first.length - 1;
  }

  members(index) {
    return this.rows.subarray(this.first[index], this.first[index + 1]);
  }
}

/** The sums by row, with what no sum can say: op calls, and kernels that help others. */
export class Cube {
  constructor(document) {
    this.columns = document.columns;
    this.table = new Table(document.cube);
    this.calls = { sets: new Sets(document.calls.with), calls: document.calls.op_calls };
    const { row, with: sets, columns } = document.helpers;
    this.helpers = { rows: row, sets: new Sets(sets), columns };
  }

  /** The number of the list that each row is in; -1: in none. */
  groupOf(lists) {
    const groups = new Int32Array(this.table.rows).fill(-1);
    lists.forEach((rows, index) => rows.forEach((row) => (groups[row] = index)));
    return groups;
  }
}
