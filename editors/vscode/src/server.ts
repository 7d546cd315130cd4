/** How the server is started, and the settings that it gets. */
import { homedir } from "node:os";
import * as vscode from "vscode";
import type { ServerOptions } from "vscode-languageclient/node";

export const SECTION = "pyprof2";

/** The settings of the server; the interpreter is a setting of this extension alone. */
const NAMES = [
  "hints", "lenses", "diagnostics", "threshold", "maxHints", "recording", "pathMap", "onSave",
  "capture", "python", "batches",
];

/**
 * The command of the server. In a workspace that is not trusted VS Code gives the interpreter of
 * the user's own settings, never that of the workspace. Nor may the folder that the server starts
 * in, or -m, which is Python's first place to look for modules, be the workspace.
 */
export function serverOptions(): ServerOptions {
  const interpreter = vscode.workspace.getConfiguration(SECTION).get<string>("interpreter", "");
  const [command, args] = interpreter
    ? [interpreter, ["-P", "-m", "pyprof2", "lsp"]]
    : ["pyprof2", ["lsp"]];
  return { command, args, options: { cwd: homedir() } };
}

/** The settings as the server knows them. Code of the workspace runs only if it is trusted. */
export function settings(): Record<string, unknown> {
  const given = vscode.workspace.getConfiguration(SECTION);
  const named = NAMES.map((name) => [name, given.get(name)]);
  return { ...Object.fromEntries(named), restricted: !vscode.workspace.isTrusted };
}
