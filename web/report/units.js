// Numbers to text, as `pyprof2/units.py` and `pyprof2/reports/cells.py` do it.
import { NULL } from "./text.js";

const TIMES = [["us", 1e3], ["ms", 1e6], ["s", 1e9]];
const FLOPS = ["", "k", "M", "G", "T"].map((prefix, power) => [`${prefix}FLOP`, 1000 ** power]);
const BYTES = ["", "k", "M", "G", "T"].map((prefix, power) => [`${prefix}B`, 1000 ** power]);
const HEADERS = {
  tflops: "TFLOP/s",
  gbps: "GB/s",
  intensity: "FLOP/B",
  mfu: "MFU %",
  tensor_core: "TC",
  tensor_core_pct: "TC %",
  utilization: "utilization %",
};

function fitting(units, largest, limit) {
  const [label, size] = units.find(([, each]) => largest < each * limit) ?? units[units.length - 1];
  return { label, size };
}

/** The unit in which times up to `largest` ns take at most four digits. */
export const timeUnit = (largest) => fitting(TIMES, largest, 1e4);
export const flopUnit = (largest) => fitting(FLOPS, largest, 1e3);
export const byteUnit = (largest) => fitting(BYTES, largest, 1e3);

/** A time as text: `551.450 ms`. */
export function time(ns) {
  if (ns === null || ns === undefined) return NULL;
  const unit = timeUnit(Math.abs(ns));
  return `${(ns / unit.size).toFixed(3)} ${unit.label}`;
}

/** A time with few digits, for sentences and axes: `177.6 ms`. */
export function shortTime(ns) {
  if (ns === null || ns === undefined) return NULL;
  if (Math.abs(ns) < 1000) return `${ns} ns`;
  const unit = [...TIMES].reverse().find(([, size]) => Math.abs(ns) >= size);
  return `${rate(ns / unit[1])} ${unit[0]}`;
}

/** Times up to `largest` ns in one unit, with as few digits as are needed: for axes and columns. */
export function timeScale(largest) {
  const unit = [["ns", 1], ...TIMES].filter(([, size]) => largest >= size).pop() ?? ["ns", 1];
  return { label: unit[0], size: unit[1], form: (ns) => String(Number((ns / unit[1]).toPrecision(4))) };
}

/** A power of ten as the tick of an axis: `0.1`, `10`, `100 T`. */
export function decade(power) {
  if (power < -3) return `10${[...String(power)].map((digit) => (digit === "-" ? "\u207b" : "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[digit])).join("")}`;
  if (power < 3) return String(Number((10 ** power).toFixed(3)));
  const step = Math.min(6, Math.floor(power / 3));
  return `${10 ** (power - 3 * step)} ${" kMGTPE"[step]}`;
}

/** Three significant digits without an exponent: `0.012`, `3.45`, `812`. */
export function rate(value) {
  if (value === null || value === undefined) return NULL;
  if (value === 0) return "0";
  if (value > 0 && value < 0.0005) return "<0.001";
  for (const [limit, decimals] of [[1, 3], [10, 2], [100, 1]]) {
    if (Math.abs(value) < limit) return value.toFixed(decimals);
  }
  return value.toFixed(0);
}

export function percent(value, decimals = 1) {
  return value === null || value === undefined ? NULL : `${value.toFixed(decimals)} %`;
}

export const integer = (value) =>
  value === null || value === undefined ? NULL : value.toLocaleString("en-US");

/** A count with its noun: `1 row`, `1,200 rows`; `many`: the plural, where it is not with an s. */
export const counted = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;

export function quantity(value, unitOf) {
  if (value === null || value === undefined) return NULL;
  const unit = unitOf(value);
  return `${rate(value / unit.size)} ${unit.label}`;
}

/**
 * How a column of numbers is shown; its unit follows from its name and its largest value.
 * @returns {{header: string, size: number, form: (value: number) => string}}
 */
export function columnFormat(name, largest) {
  const suffix = name.slice(name.lastIndexOf("_") + 1);
  const base = name.slice(0, Math.max(0, name.lastIndexOf("_")));
  const scaled = (unit, word, digits) => ({
    header: HEADERS[name] ?? name.replace(word, unit.label),
    size: unit.size,
    form: (value) => digits(value / unit.size),
  });
  if (name.startsWith("flops")) return scaled(flopUnit(largest), "flops", rate);
  if (name.includes("bytes")) return scaled(byteUnit(largest), "bytes", rate);
  if (suffix === "ns") {
    const unit = timeUnit(largest);
    return { header: `${base} ${unit.label}`, size: unit.size, form: (v) => (v / unit.size).toFixed(3) };
  }
  if (suffix === "pct") {
    const decimals = base === "share" ? 2 : 1;
    return { header: HEADERS[name] ?? `${base} %`, size: 1, form: (v) => v.toFixed(decimals) };
  }
  return { header: HEADERS[name] ?? name, size: 1, form: Number.isInteger(largest) ? integer : rate };
}
