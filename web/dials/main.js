// The page with the dials: what each batch size takes, and the number in the code that it changes.
import "./style.css";
import { copy } from "../report/clipboard.js";
import { readDocument } from "../report/document.js";
import { el, multiline, shown } from "../report/text.js";
import { startTheme, themeButton } from "../report/theme.js";
import { byteUnit, quantity, rate, shortTime } from "../report/units.js";
import { elsewhere } from "../report/elsewhere.js";
import { Bars } from "./bars.js";
import { Dial } from "./dial.js";
import { hostOf } from "./host.js";
import { patch } from "./patch.js";

const AGAIN = 2000;
const TONES = { forward: "--busy", backward: "--comm", recompute: "--idle-0", optimizer: "--copies" };
/** Parts that do not grow with the batch. */
const STAYS = new Set(["does not grow", "parameter", "buffer", "parameter_or_buffer", "gradient", "optimizer_state"]);
const UNTRIED = "predicted, not tried";
const bytes = (value) => quantity(value, byteUnit);
const samples = (value) => `${rate(value)} samples/s`;

class App {
  constructor(doc, host) {
    this.doc = doc;
    this.host = host;
    this.code = doc.code;
    this.busy = false;
    this.gone = "";
    this.status = el("p", { id: "status", role: "status", "aria-live": "polite" });
    this.badge = el("span", { class: "badge", id: "sure" });
    this.size = el("strong", { id: "batch" });
    this.fits = el("span", { class: "fits" });
    this.panel = el("section", { class: "code", "aria-label": "In the code" });
    this.at = this.home = this.place(doc.recorded.at(-1)) ?? 0;
    this.dials = this.made();
    this.bars = this.stacked();
    this.others = el("section", { class: "others", hidden: !doc.elsewhere?.length });
  }

  /** Where a batch size stands in the columns; null: nowhere. */
  place(size) {
    const at = this.doc.batches.indexOf(size);
    return at < 0 ? null : at;
  }

  made() {
    const { doc } = this;
    const handlers = { move: (at) => this.show(at), commit: () => this.commit(), restore: () => this.show(this.home) };
    const common = { batches: doc.batches, recorded: doc.recorded.map((size) => this.place(size)) };
    const of = doc.measure === "step_time_ns" ? "" : ", if kernels were all";
    const { asymptote, usable_bytes: usable } = doc.limits;
    const found = [];
    if (doc.throughput) {
      const limitText = asymptote === null ? "" : `no batch reaches ${samples(asymptote)}`;
      found.push(new Dial({ ...common, id: "throughput", title: `Throughput${of}`, column: doc.throughput, text: samples, limit: asymptote, limitText, binds: false }, handlers));
    }
    if (doc.memory) {
      const limitText = usable === null ? "" : `up to ${bytes(usable)} fit`;
      found.push(new Dial({ ...common, id: "memory", title: "Memory", column: doc.memory, text: bytes, limit: usable, limitText, binds: true }, handlers));
    }
    return found;
  }

  stacked() {
    const { time_parts: times, memory_parts: memory, measure } = this.doc;
    const found = [];
    const parts = times.map(({ phase, group, values }) => ({ name: `${phase} ${group}`, tone: TONES[phase] ?? "--idle-3", values }));
    const what = measure === "step_time_ns" ? "Time of kernels or ops in a step" : "Time of kernels";
    if (parts.length) found.push(new Bars(what, parts, shortTime, "Parts may overlap; idle time is in none."));
    const held = memory.map(({ name, values }) => ({ name, tone: STAYS.has(name) ? "--copies" : "--busy", values }));
    if (held.length) found.push(new Bars("Memory at its most", held, bytes, ""));
    return found;
  }

  // -- what is shown ---------------------------------------------------------------------------

  /** Show a batch size; the code is as it was. */
  show(at) {
    this.at = at;
    const status = this.doc.status[at];
    const kind = status.split(" ")[0];
    const words = `batch ${this.doc.batches[at]}, ${status}`;
    for (const dial of this.dials) dial.show(at, kind, words);
    for (const bars of this.bars) bars.show(at, this.home);
    this.showOthers();
    this.size.textContent = `Batch ${this.doc.batches[at]}`;
    this.badge.textContent = sure(status);
    this.badge.className = `badge ${kind}`;
    this.fits.textContent = this.fitting(at);
    this.fits.hidden = this.fits.textContent === "";
    if (!this.host) this.showPatch();
    document.documentElement.dataset.batch = this.doc.batches[at];
  }

  /** Show the recording nearest to the batch on other devices. */
  showOthers() {
    const size = this.doc.batches[this.at];
    const far = ({ batch }) => Math.abs(Math.log(batch / size));
    const near = [...(this.doc.elsewhere ?? [])].sort((a, b) => far(a) - far(b))[0];
    if (!near || near === this.near) return;
    this.near = near;
    this.others.replaceChildren(el("h2", {}, `On another GPU, at a batch of ${near.batch}`), elsewhere(near));
  }

  /** Whether a batch that may not fit is expected to; empty: it is sure to fit, or nothing is known. */
  fitting(at) {
    const { usable_bytes: usable, expected } = this.doc.limits;
    const [value, lo, hi] = ["value", "lo", "hi"].map((name) => this.doc.memory?.[name][at] ?? null);
    if (expected === null || usable === null || value === null || hi <= usable) return "";
    const words = lo > usable ? "does not fit" : value > usable ? "is not expected to fit" : "is expected to fit, which is not sure";
    const between = lo < hi ? `about ${bytes(value)}, from ${bytes(lo)} to ${bytes(hi)}` : bytes(value);
    return `${words}: it takes ${between}; ${bytes(usable)} can be allocated`;
  }

  // -- the code --------------------------------------------------------------------------------

  get chosen() {
    return this.code && this.code.chosen !== null ? this.code.places[this.code.chosen] : null;
  }

  /** Why the dials may not move; empty: they may. */
  get refusal() {
    if (this.gone) return this.gone;
    if (!this.code) return "";
    if (this.code.refusal) return this.code.refusal;
    const value = this.chosen?.value;
    return value && this.place(value) === null ? `${value} in the code is beyond the sizes of this page` : "";
  }

  /** Take what stands in the code now: the dials go there. */
  take(code) {
    this.code = code;
    this.home = this.place(this.chosen?.value) ?? this.home;
    if (this.doc.batches[this.at] !== this.chosen?.value) this.cancel();
    this.show(this.home);
    this.drawCode();
  }

  cancel() {
    for (const dial of this.dials) dial.cancel();
  }

  drawCode() {
    const { refusal } = this;
    for (const dial of this.dials) dial.allow(!refusal && !this.busy);
    this.panel.replaceChildren(...this.codeNodes(refusal));
    if (!this.host) this.showPatch();
  }

  codeNodes(refusal) {
    const heading = el("h2", {}, "In the code");
    if (!this.code) return [heading, el("p", {}, "No code is given: ", el("code", {}, "--code FILE"), " makes a patch of what you dial.")];
    const nodes = [heading];
    if (this.code.places.length) nodes.push(this.choice());
    if (refusal) nodes.push(el("p", { class: "refusal", id: "refusal" }, "Read-only: ", shown(refusal)));
    else if (this.host) nodes.push(el("p", { class: "hint" }, "The number changes when you let go; undo is in the editor. Escape puts back what was."));
    this.patch = el("pre", { id: "patch", tabindex: 0, "aria-label": "Patch", hidden: true });
    this.take_along = el("p", { class: "tools", hidden: true },
      el("button", { type: "button", click: () => copy(this.patchText, "Patch") }, "Copy patch"),
      el("button", { type: "button", click: () => this.save() }, "Save patch"));
    return [...nodes, this.patch, this.take_along];
  }

  choice() {
    const options = this.code.places.map(({ place, name, text }, at) =>
      el("option", { value: at, selected: at === this.code.chosen }, `${shown(place)}  ${shown(name)} = ${shown(text)}`));
    const none = el("option", { value: "", selected: this.code.chosen === null, disabled: true }, "choose which of these is the batch size");
    const list = el("select", { id: "place", change: () => this.choose(Number(list.value)) }, none, ...options);
    const go = this.host && this.chosen && el("button", { type: "button", click: () => this.ask({ ask: "show", key: this.chosen.key }) }, "Show the line");
    return el("p", { class: "tools" }, el("label", { for: "place" }, "It stands at "), list, go || null);
  }

  async choose(at) {
    const place = this.code.places[at];
    if (!this.host) {
      this.take({ ...this.code, chosen: at, refusal: place.refusal });
      return;
    }
    if (await this.ask({ ask: "choose", key: place.key })) await this.refresh();
    else this.drawCode();
  }

  /** Take the dialled size: the code changes, or a patch is there for it. */
  async commit() {
    const place = this.chosen;
    const [from, to] = [this.doc.batches[this.home], this.doc.batches[this.at]];
    if (!this.host) {
      if (!this.code) this.home = this.at;
      this.show(this.at);
      return;
    }
    if (!place || from === to) return;
    this.busy = true;
    this.drawCode();
    const done = await this.ask({ ask: "set", key: place.key, from, to });
    this.busy = false;
    if (done) this.home = this.at;
    await this.refresh();
    this.show(this.home);
    this.drawCode();
  }

  get patchText() {
    return patch(this.chosen.hunk, this.doc.batches[this.at]);
  }

  showPatch() {
    if (!this.patch) return;
    const there = !this.refusal && this.chosen && this.doc.batches[this.at] !== this.chosen.value;
    this.patch.hidden = this.take_along.hidden = !there;
    this.patch.textContent = there ? multiline(this.patchText) : "";
  }

  save() {
    const url = URL.createObjectURL(new Blob([this.patchText], { type: "text/x-diff" }));
    el("a", { href: url, download: `batch-${this.doc.batches[this.at]}.patch` }).click();
    setTimeout(() => URL.revokeObjectURL(url), AGAIN);
  }

  // -- the editor ------------------------------------------------------------------------------

  /** Whether the host did what it is asked; what it says is shown. */
  async ask(message) {
    const found = await this.host.ask(message).catch((error) => ({ ok: false, text: String(error) }));
    if (found.text) this.status.textContent = multiline(found.text);
    return found.ok ? found : null;
  }

  async refresh() {
    const found = await this.ask({ ask: "state" });
    if (found) this.hear(found);
  }

  hear(found) {
    if (this.seen !== undefined && found.state < this.seen) return;
    this.seen = found.state;
    if (!this.busy) this.take(found.code);
  }

  /** Hear of each change in the editor until it is gone. */
  async follow() {
    for (;;) {
      try {
        const found = await this.host.ask({ ask: "state", seen: this.seen });
        if (!found.ok) throw new Error(found.text);
        const is_new = found.state !== this.seen || this.gone;
        this.gone = "";
        if (is_new) this.hear(found);
      } catch (error) {
        this.gone = `the editor does not answer: ${error.message}`;
        this.drawCode();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }
}

function sure(status) {
  if (status === "interpolated") return `interpolated: ${UNTRIED}`;
  if (status.startsWith("extrapolated")) return `${status} beyond the recordings: ${UNTRIED}`;
  return status === "verified" ? "verified: run since it was suggested" : status;
}

function draw(app) {
  const { doc } = app;
  const device = doc.device ? `${shown(doc.device)}; ` : "";
  document.getElementById("app").append(
    el("header", {}, el("h1", {}, "Batch size"), el("span", { class: "made" }, `${device}recorded: ${doc.recorded.join(", ")}; pyprof2 ${shown(doc.version)}`), themeButton()),
    el("main", {},
      el("p", { class: "now" }, app.size, app.badge, app.fits),
      el("div", { class: "columns" },
        el("div", { class: "dials" }, ...app.dials.map(({ node }) => node)),
        el("div", { class: "rest" }, app.panel, ...app.bars.map(({ node }) => node), app.others)),
      el("p", { class: "hint" }, `Drag a dial, or move it with the arrow keys, Page Up and Page Down, Home and End. A dial can stand at every size below 256 and at some above; ticks are recordings; what is hatched lies beyond them.`),
      el("section", {}, el("h2", {}, "What it rests on"), el("ul", { class: "notes" }, ...doc.notes.map((note) => el("li", {}, shown(note))))),
      app.status));
}

/** The data of the page, or of its host. */
async function loaded() {
  const own = document.getElementById("document").textContent.trim();
  if (own) return { doc: await readDocument(), host: null };
  const host = hostOf();
  const found = await host.ask({ ask: "document" });
  if (!found.ok) throw new Error(found.text);
  return { doc: found.document, host };
}

async function start() {
  startTheme();
  const { doc, host } = await loaded();
  const app = new App(doc, host);
  draw(app);
  app.show(app.home);
  if (host) await app.refresh();
  else if (app.code) app.take(app.code);
  else app.drawCode();
  document.documentElement.dataset.ready = "true";
  if (host) await app.follow();
}

start().catch((error) => {
  document.body.append(el("p", { role: "alert", class: "empty" }, "There are no dials: ", multiline(error.message)));
  document.documentElement.dataset.ready = "false";
});
