// Write report.js, report.css, dials.js, dials.css and report-licences.txt into pyprof2/data/built, or into the folder that
// the first argument names. The same sources and lock file give the same bytes.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { licences, packagesOf } from "./licences.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? join(here, "..", "pyprof2", "data", "built"));

const ENTRIES = { report: "report/main.js", dials: "dials/main.js" };
const packages = new Set();
for (const [name, path] of Object.entries(ENTRIES)) {
  const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: { [name]: path },
    outdir: folder,
    bundle: true,
    minify: true,
    // The page is one file: a line that closes the script element would end the script.
    supported: { "inline-script": false, "inline-style": false },
    charset: "ascii",
    format: "iife",
    target: ["chrome110", "firefox113", "safari16.4"],
    legalComments: "none",
    metafile: true,
    define: { "process.env.NODE_ENV": '"production"' },
    logLevel: "warning",
  });
  for (const each of packagesOf(metafile)) packages.add(each);
}

const intro =
  "report.js and report.css carry parts of these packages from npm. Their licences follow.";
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "report-licences.txt"), licences(here, [...packages].sort(), intro));
