/** Starts `pyprof2 lsp`, which knows everything, and shows what VS Code has no place for. */
import * as vscode from "vscode";
import type { ExecuteCommandSignature } from "vscode-languageclient";
import type { LanguageClientOptions, ShowMessageRequestParams } from "vscode-languageclient/node";
import { LanguageClient, ShowMessageRequest } from "vscode-languageclient/node";
import { showDials } from "./dials";
import { Panel } from "./panel";
import { SECTION, serverOptions, settings } from "./server";

const LANGUAGES = ["python", "yaml"].map((language) => ({ scheme: "file", language }));
const SET_BATCH_SIZE = "pyprof2.setBatchSize";
const SET_SCOPE = "pyprof2.setScope";
/** So many answers still fit under a message; more are a list. */
const MOST_BUTTONS = 2;

let client: LanguageClient | undefined;
let panel: Panel;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  panel = new Panel(context, (command, ...given) => vscode.commands.executeCommand(command, ...given));
  context.subscriptions.push(
    panel,
    vscode.commands.registerCommand("pyprof2.showPanel", () => panel.show()),
    vscode.commands.registerCommand("pyprof2.showDials", showDials),
    vscode.commands.registerCommand("pyprof2.restart", restart),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
    vscode.workspace.onDidChangeConfiguration(configured),
  );
  await start();
}

export async function deactivate(): Promise<void> {
  await client?.stop();
}

async function restart(): Promise<void> {
  const old = client;
  client = undefined;
  // One that did not start cannot be stopped.
  await old?.stop().catch(() => undefined);
  await start();
}

async function start(): Promise<void> {
  const starting = new LanguageClient(SECTION, "pyprof2", serverOptions(), clientOptions());
  try {
    await starting.start();
  } catch (error) {
    void failed(error);
    return;
  }
  client = starting;
  // In the place of the client's own, which has no list.
  client.onRequest(ShowMessageRequest.type, choose);
  client.onNotification("pyprof2/changed", () => panel.changed());
  panel.changed();
}

async function failed(error: unknown): Promise<void> {
  const open = "Settings";
  const text =
    `pyprof2: the server did not start (${error}): pip install 'pyprof2[lsp]', and name that ` +
    "Python in the setting pyprof2.interpreter";
  if ((await vscode.window.showErrorMessage(text, open)) === open) {
    await vscode.commands.executeCommand("workbench.action.openSettings", "pyprof2.interpreter");
  }
}

async function configured(event: vscode.ConfigurationChangeEvent): Promise<void> {
  if (event.affectsConfiguration(`${SECTION}.interpreter`)) {
    await restart();
  } else if (event.affectsConfiguration(SECTION)) {
    await client?.sendNotification("workspace/didChangeConfiguration", {
      settings: { [SECTION]: settings() },
    });
  }
}

function clientOptions(): LanguageClientOptions {
  return {
    documentSelector: LANGUAGES,
    initializationOptions: settings(),
    middleware: {
      executeCommand: asked,
      provideHover: (document, position, token, next) => {
        panel.here(document.uri, position.line);
        return next(document, position, token);
      },
    },
  };
}

/** Ask for what a command needs, where it was called without, as from the palette. */
async function asked(command: string, given: unknown[], next: ExecuteCommandSignature) {
  if (given.length === 0 && command === SET_BATCH_SIZE) {
    const text = await vscode.window.showInputBox({
      prompt: "Batch size",
      validateInput: (value) => (/^[1-9][0-9]{0,8}$/.test(value) ? null : "a number of 1 or more"),
    });
    return text === undefined ? undefined : next(command, [Number(text)]);
  }
  if (given.length === 0 && command === SET_SCOPE) {
    const prompt = "Module, such as blocks.1; empty: all of them";
    const text = await vscode.window.showInputBox({ prompt });
    return text === undefined ? undefined : next(command, [text]);
  }
  return next(command, given);
}

async function choose({ message, actions = [] }: ShowMessageRequestParams) {
  const titles = actions.map(({ title }) => title);
  const chosen =
    titles.length > MOST_BUTTONS
      ? await vscode.window.showQuickPick(titles, { placeHolder: message })
      : await vscode.window.showInformationMessage(message, ...titles);
  return actions.find(({ title }) => title === chosen) ?? null;
}
