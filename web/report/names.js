// Names that are too long, cut in the middle: their ends tell them apart.
import { clean, shown } from "./text.js";

const CUT = "\u2026";
/** How many letters of the beginning are kept at least, and how far a cut moves to a separator. */
const HEAD = 8;
const NEAR = 14;
/** How many times its room a label may take, before what tells it apart is cut too. */
const MORE = 2;

const backwards = (text) => [...text].reverse().join("");

/** How many letters of each text it takes to tell it from all others. */
function lengths(texts) {
  const sorted = [...texts].sort();
  const needed = new Map();
  const shared = (a, b) => {
    let at = 0;
    while (at < a.length && a[at] === b[at]) at += 1;
    return at;
  };
  let before = 0;
  sorted.forEach((text, index) => {
    const after = index + 1 < sorted.length ? shared(text, sorted[index + 1]) : 0;
    needed.set(text, Math.max(before, after) + 1);
    before = after;
  });
  return needed;
}

/** Neither half of a character of two halves. */
const whole = (text, at) => (/[\ud800-\udbff]/.test(text[at - 1] ?? "") && /[\udc00-\udfff]/.test(text[at] ?? "") ? at + 1 : at);

function joined(text, head, tail) {
  return `${clean(text.slice(0, whole(text, head)))}${CUT}${clean(text.slice(whole(text, text.length - tail)))}`;
}

/** The end begins behind a separator, where there is one near. */
function atSeparator(text, tail, least) {
  const from = text.length - tail;
  const found = /[./:,\s]/.exec(text.slice(from, from + NEAR));
  const shorter = found ? tail - found.index - 1 : tail;
  return shorter >= least ? shorter : tail;
}

function label(text, room, begin, end) {
  const most = room - 1 - HEAD;
  if (text.length <= room) return clean(text);
  if (end <= most) {
    const tail = atSeparator(text, Math.min(most, Math.max(end, Math.ceil(room * 0.65))), end);
    return joined(text, room - 1 - tail, tail);
  }
  if (begin <= most) return joined(text, begin, room - 1 - begin);
  // The difference is further in: a line or two more, or what is around it alone.
  if (Math.min(begin, end) <= MORE * room) return end <= begin ? joined(text, HEAD, end) : joined(text, begin, 2 * HEAD);
  const around = room - 2 * HEAD - 2;
  const from = Math.max(HEAD, Math.min(begin - Math.ceil(around / 2), text.length - HEAD - around));
  return `${clean(text.slice(0, HEAD))}${CUT}${clean(text.slice(from, from + around))}${CUT}${clean(text.slice(-HEAD))}`;
}

/**
 * A label of about `room` letters for each text; no two texts have the same.
 * @returns {Map<string, string>}
 */
export function labelsOf(texts, room) {
  const all = [...new Set(texts)];
  const begins = lengths(all);
  const ends = lengths(all.map(backwards));
  const made = new Map(all.map((text) => [text, label(text, Math.max(24, room), begins.get(text), ends.get(backwards(text)))]));
  unlike(made, shown);
  const count = new Map();
  unlike(made, (text, same) => {
    const number = (count.get(same) ?? 0) + 1;
    count.set(same, number);
    return `${same} (${number})`;
  });
  return made;
}

/** Give those that have one label another one. */
function unlike(made, other) {
  const by = new Map();
  for (const [text, same] of made) {
    if (by.has(same)) by.get(same).push(text);
    else by.set(same, [text]);
  }
  for (const [same, texts] of by) {
    if (texts.length > 1) texts.forEach((text) => made.set(text, other(text, same)));
  }
}

/** As much of a text as fits, its middle left out; nothing where that says nothing. */
export function fitted(text, width, measure) {
  const whole = shown(text);
  if (measure(whole) <= width) return whole;
  let [least, most] = [0, Math.min(whole.length - 1, 200)];
  const cut = (letters) => {
    const head = Math.floor(letters * 0.3);
    return `${whole.slice(0, head)}${CUT}${whole.slice(whole.length - (letters - head))}`;
  };
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (measure(cut(middle)) <= width) least = middle;
    else most = middle - 1;
  }
  return least < 2 ? "" : cut(least);
}
