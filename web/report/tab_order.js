// The tabs of the page, in their order: a new one is a file of tabs/, and a line here.
import { breakdownPage } from "./tabs/breakdown.js";
import { compare } from "./tabs/compare.js";
import { findings } from "./tabs/findings.js";
import { icicle } from "./tabs/icicle.js";
import { idle } from "./tabs/idle.js";
import { memory } from "./tabs/memory.js";
import { overview } from "./tabs/overview.js";
import { path } from "./tabs/path.js";
import { ranks } from "./tabs/ranks.js";
import { roofline } from "./tabs/roofline.js";
import { serving } from "./tabs/serving.js";
import { source } from "./tabs/source.js";
import { timeline } from "./tabs/timeline.js";
import { tree } from "./tabs/tree.js";

export const PAGES = [
  overview,
  breakdownPage("ops", "Ops", ["op", "signature"]),
  breakdownPage("kernels", "Kernels", ["name", "category"]),
  breakdownPage("layers", "Layers", ["layer"],
    "No layer was recorded. With pyprof2.nvtx, or pyprof2 capture, the modules of the model are."),
  breakdownPage("lines", "Lines", ["source"],
    "No line of code was recorded. Record Python stacks: with_stack=True, or pyprof2 capture."),
  tree,
  breakdownPage("ranges", "Ranges", ["range"],
    "No range of yours was recorded. record_function(\"\u2026\") or nvtx.annotate(\"\u2026\") makes one."),
  roofline,
  icicle,
  timeline,
  serving,
  memory,
  source,
  idle,
  findings,
  path,
  compare,
  ranks,
];
