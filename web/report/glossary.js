// The meaning of words, beside them: on hover, and by keyboard where they have the focus.
import { el } from "./text.js";

const UNITS = "Parts of the device that multiply whole matrices: Tensor Cores of NVIDIA, Matrix Cores of AMD.";
const WORDS = {
  linked: "It is known which op of PyTorch launched the kernel: from the kernel to its launch to the op around that.",
  costed: "FLOPs and bytes are known: the op has a formula, and its shapes were recorded.",
  assumed: "FLOPs and bytes rest on an assumption, which pyprof2 explain names.",
  "no formula": "pyprof2 has no formula for the FLOPs and bytes of these ops.",
  "no shapes": "The shapes of these ops were not recorded, so their FLOPs and bytes are not known.",
  "no op": "No op of PyTorch is known that launched these kernels.",
  "known FLOPs and bytes": "The op has a formula, and its shapes were recorded.",
  "disturbed by recording": "What the profiler does takes time of its own: what it slows down is no cost of the program.",
  "matrix units": UNITS,
  "Tensor Cores": UNITS,
  busy: "At least one kernel or copy runs; what overlaps counts once.",
  "GPU busy": "The share of the time in which at least one kernel or copy runs; what overlaps counts once.",
  "GPU utilization": "The share of the time in which at least one kernel runs. It does not say how much of the device that kernel uses.",
  "SM efficiency": "The mean share of the multiprocessors that had at least one block to run.",
  occupancy: "How many warps a multiprocessor holds, of those that it could, on average over the kernels.",
  MFU: "Model FLOPs utilization: the FLOPs of the model over what the device can do at its peak in the same time. \u201cAt least\u201d: the FLOPs of some matrix work are not known.",
  HFU: "Hardware FLOPs utilization: as MFU, with what was computed again.",
  "memory peak": "The most bytes that were allocated at one time.",
  "exposed communication": "Communication beside which nothing else runs: the step is longer by it.",
};

let bubble = null;
let owner = null;

function hide() {
  bubble?.remove();
  bubble = null;
}

function show(node, meaning) {
  hide();
  owner = node;
  bubble = el("div", { role: "tooltip", id: "gloss" }, meaning);
  document.body.append(bubble);
  place(node);
}

function place(node) {
  const { left, bottom, top } = node.getBoundingClientRect();
  const { width, height } = bubble.getBoundingClientRect();
  const space = 8;
  bubble.style.left = `${Math.max(space, Math.min(left, document.documentElement.clientWidth - width - space))}px`;
  bubble.style.top = `${bottom + height + space > window.innerHeight && top > height + space ? top - height - 4 : bottom + 4}px`;
}

/** `node`, whose meaning is shown while it has the pointer or the focus. */
export function glossed(node, meaning) {
  node.setAttribute("aria-description", meaning);
  for (const name of ["mouseenter", "focus"]) node.addEventListener(name, () => show(node, meaning));
  for (const name of ["mouseleave", "blur"]) node.addEventListener(name, hide);
  node.addEventListener("keydown", ({ key }) => key === "Escape" && hide());
  return node;
}

const term = (word, meaning) => glossed(el("span", { class: "term", tabindex: "0" }, word), meaning);

/** A text as nodes; the words in it that need one have their meaning, once. */
export function explained(text, causes = {}) {
  const left = new Map(Object.entries({ ...WORDS, ...causes }));
  const words = [...left.keys()].sort((a, b) => b.length - a.length).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = text.split(new RegExp(`(?<![\\w.])(${words.join("|")})(?![\\w.])`));
  return parts.map((part, at) => {
    if (at % 2 === 0 || !left.has(part)) return part;
    const meaning = left.get(part);
    left.delete(part);
    return term(part, meaning);
  });
}

// Whoever leaves a page leaves its words.
window.addEventListener("hashchange", hide);
// A word that gets the focus may be scrolled to.
window.addEventListener("scroll", () => bubble && place(owner), true);
