// The licences of the npm packages of which something is in a bundle of esbuild.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

/**
 * The name, version and licence texts of packages, one after another.
 *
 * @param here - the folder that has node_modules
 * @param names - of the packages
 * @param intro - the first line
 */
export function licences(here, names, intro) {
  return [`${intro}\n`, ...names.map((name) => licence(here, name))].join(`\n${"=".repeat(80)}\n`);
}

/** The npm packages of which something is in the bundle that esbuild says this of, by name. */
export function packagesOf(metafile) {
  const names = new Set();
  for (const output of Object.values(metafile.outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
      const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
      if (found && bytesInOutput > 0) names.add(found[1]);
    }
  }
  return [...names].sort();
}

function licence(here, name) {
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
