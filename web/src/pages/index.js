// All pages, in the order of their tabs.
import { breakdownPage } from "./breakdown.js";
import { compare } from "./compare.js";
import { findings } from "./findings.js";
import { icicle } from "./icicle.js";
import { idle } from "./idle.js";
import { memory } from "./memory.js";
import { overview } from "./overview.js";
import { path } from "./path.js";
import { ranks } from "./ranks.js";
import { roofline } from "./roofline.js";
import { serving } from "./serving.js";
import { source } from "./source.js";
import { timeline } from "./timeline.js";
import { tree } from "./tree.js";

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
