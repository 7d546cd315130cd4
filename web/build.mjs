// Write report.js, report.css, dials.js, dials.css and report-licences.txt into pyprof2/data, or into the folder that
// the first argument names. The same sources and lock file give the same bytes.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? join(here, "..", "pyprof2", "data"));

const ENTRIES = { report: "src/main.js", dials: "dials/main.js" };
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

writeFileSync(join(folder, "report-licences.txt"), licences([...packages].sort()));

/** The npm packages of which something is in the bundle, by name. */
function packagesOf(metafile) {
  const names = new Set();
  for (const output of Object.values(metafile.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
      const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
      if (found && bytesInOutput > 0) names.add(found[1]);
    }
  }
  return names;
}

/** The name, version and licence texts of each package, one after another. */
function licences(names) {
  mkdirSync(folder, { recursive: true });
  const intro =
    "report.js and report.css carry parts of these packages from npm. Their licences follow.\n";
  return [intro, ...names.map(licence)].join(`\n${"=".repeat(80)}\n`);
}

function licence(name) {
  const root = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const texts = files(root, (file) => /^(licen[cs]es?|notice|copying)\b/i.test(file));
  if (!texts.length) throw new Error(`${name}: no licence text in the package`);
  return `${name} ${version} (${license})\n\n${texts.join("\n\n").replace(/\r\n/g, "\n")}\n`;
}

/** The texts of the files of a folder whose names are wanted, and of all files of such a folder. */
function files(folder, wanted) {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => wanted(name));
  return entries.sort((a, b) => (a.name < b.name ? -1 : 1)).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? files(path, () => true) : [readFileSync(path, "utf8").trim()];
  });
}
