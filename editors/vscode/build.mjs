// Write what the extension carries: out/extension.js, out/page.js, and the licences.
import { copyFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { licences, packagesOf } from "../../web/licences.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const common = {
  absWorkingDir: here, outdir: "out", bundle: true, minify: true, charset: "ascii", legalComments: "none",
  metafile: true, logLevel: "warning",
};

rmSync(join(here, "out"), { recursive: true, force: true });
const { metafile } = await build({
  ...common, entryPoints: ["src/extension.ts"], platform: "node", format: "cjs", target: "node20", external: ["vscode"],
});
await build({
  ...common, entryPoints: ["src/page.ts"], platform: "browser", format: "iife", target: "chrome120",
});
const intro = "out/extension.js carries parts of these packages from npm. Their licences follow.";
writeFileSync(join(here, "licences.txt"), licences(here, packagesOf(metafile), intro));
copyFileSync(join(here, "..", "..", "LICENSE"), join(here, "LICENSE.txt"));
