// The view of the reader, all of it in the fragment of the address: the page, the selection, the
// way down to where they are, and how the table is sorted and filtered.

/** Chosen in the bar above every page. */
export const GLOBAL = ["rank", "step", "direction", "layer"];
/** Chosen by going down from a row. */
const DRILL = ["cause", "category", "kernel", "op", "signature", "range", "source"];
export const SELECTION = [...GLOBAL, ...DRILL];

const LONGEST = 200;

/** A state of the fragment: names and values, both text. */
export class State extends EventTarget {
  constructor() {
    super();
    this.values = this.read();
    window.addEventListener("hashchange", () => this.refresh());
  }

  read() {
    return new Map(new URLSearchParams(window.location.hash.slice(1)));
  }

  refresh() {
    this.values = this.read();
    this.dispatchEvent(new Event("change"));
  }

  get(name) {
    return this.values.get(name) ?? null;
  }

  get page() {
    return this.get("page");
  }

  /** The fragment after these changes; a value of null takes a name out. */
  fragment(changes, base = this.values) {
    const values = new Map(base);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "" || value === undefined) values.delete(name);
      else values.set(name, String(value));
    }
    return `#${new URLSearchParams([...values])}`;
  }

  /** Go somewhere, so that the browser's way back leads here. */
  go(changes) {
    window.location.hash = this.fragment(changes);
  }

  /** Go to a page with the selection and `changes`, without how the last page was sorted. */
  open(page, changes = {}) {
    const kept = new Map([...this.values].filter(([name]) => SELECTION.includes(name)));
    window.location.hash = this.fragment({ ...changes, page }, kept);
  }

  /** Remember how the page stands, without a step in the history and without drawing it anew. */
  note(changes) {
    const fragment = this.fragment(changes);
    window.history.replaceState(null, "", fragment);
    this.values = this.read();
  }

  /** The names and values of the selection. */
  selection() {
    return SELECTION.filter((name) => this.values.has(name)).map((name) => [name, this.get(name)]);
  }
}

/**
 * A text as it stands in the fragment: a long one, and one that looks like what follows, by its
 * number among the `texts` of its column. `alone` says of a path that what is below is not meant.
 */
export function encodeText(text, texts, alone = false) {
  const written = text.length > LONGEST || /^[~=]/.test(text) ? `~${texts.indexOf(text)}` : text;
  return alone ? `=${written}` : written;
}

/** The meaning of a value of the fragment. */
export function decodeText(value, texts) {
  const alone = value.startsWith("=");
  const written = alone ? value.slice(1) : value;
  const number = /^~(\d+)$/.exec(written);
  const text = number && Number(number[1]) < texts.length ? texts[Number(number[1])] : written;
  return { text, alone };
}
