/** The panel: bars of time and memory, linked with the code both ways. */
import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { Below, Breakdown, FromPage, Place, ToPage } from "./messages";

type Run = (command: string, ...given: unknown[]) => Thenable<unknown>;

export class Panel implements vscode.Disposable {
  private shown: vscode.WebviewPanel | undefined;
  private readonly listeners: vscode.Disposable[];
  private readonly lit = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("editor.findMatchHighlightBackground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.findMatchForeground"),
  });

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly run: Run,
  ) {
    this.listeners = [
      this.lit,
      vscode.window.onDidChangeTextEditorSelection(({ textEditor, selections }) =>
        this.here(textEditor.document.uri, selections[0].active.line),
      ),
    ];
  }

  dispose(): void {
    this.shown?.dispose();
    for (const each of this.listeners) each.dispose();
  }

  /** Show the panel beside the code. */
  show(): void {
    if (this.shown) {
      this.shown.reveal(undefined, true);
      return;
    }
    const roots = ["out", "media"].map((name) => vscode.Uri.joinPath(this.context.extensionUri, name));
    this.shown = vscode.window.createWebviewPanel(
      "pyprof2.breakdown",
      "pyprof2",
      { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
      { enableScripts: true, localResourceRoots: roots },
    );
    this.shown.onDidDispose(() => {
      this.shown = undefined;
      this.light(undefined);
    });
    this.shown.webview.onDidReceiveMessage((message: FromPage) => this.received(message));
    this.shown.webview.html = this.html(this.shown.webview);
  }

  /** Have the panel ask anew. */
  changed(): void {
    this.tell({ type: "changed" });
  }

  /** Mark the row of a line of code. */
  here(uri: vscode.Uri, line: number): void {
    if (uri.scheme === "file") this.tell({ type: "here", uri: uri.toString(), line });
  }

  private tell(message: ToPage): void {
    void this.shown?.webview.postMessage(message);
  }

  private async received(message: FromPage): Promise<void> {
    switch (message.type) {
      case "ask":
        this.tell({ type: "rows", id: message.id, breakdown: await this.breakdown(message.below) });
        break;
      case "light":
        this.light(message.place);
        break;
      case "open":
        await this.open(message.place);
        break;
    }
  }

  /** The answer of the server. It knows functions and lines of open files only. */
  private async breakdown(below: Below | null): Promise<Breakdown> {
    const nothing = { ok: false, text: "pyprof2: the server does not run", rows: [] };
    try {
      if (below?.uri) await vscode.workspace.openTextDocument(vscode.Uri.parse(below.uri));
      const answer = await this.run("pyprof2.breakdown", ...(below ? [below] : []));
      return (answer as Breakdown | undefined) ?? nothing;
    } catch (error) {
      return { ...nothing, text: `pyprof2: ${error instanceof Error ? error.message : error}` };
    }
  }

  private light(place: Place | undefined): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const isThere = place !== undefined && isOf(editor, place);
      editor.setDecorations(this.lit, isThere ? [range(editor.document, place)] : []);
    }
  }

  private async open(place: Place): Promise<void> {
    const there = vscode.window.visibleTextEditors.find((editor) => isOf(editor, place));
    const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(place.uri));
    await vscode.window.showTextDocument(document, {
      viewColumn: there?.viewColumn ?? vscode.ViewColumn.One,
      preserveFocus: true,
      selection: new vscode.Range(place.first, 0, place.first, 0),
    });
  }

  private html(webview: vscode.Webview): string {
    const nonce = randomBytes(16).toString("hex");
    const file = (...path: string[]) =>
      webview.asWebviewUri(vscode.Uri.joinPath(this.context.extensionUri, ...path)).toString();
    return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'">
<title>pyprof2</title>
<link rel="stylesheet" href="${file("media", "panel.css")}">
</head>
<body><script nonce="${nonce}" src="${file("out", "page.js")}"></script></body>
</html>`;
  }
}

function isOf(editor: vscode.TextEditor, place: Place): boolean {
  return editor.document.uri.toString() === vscode.Uri.parse(place.uri).toString();
}

function range(document: vscode.TextDocument, { first, last }: Place): vscode.Range {
  return document.validateRange(new vscode.Range(first, 0, last, Number.MAX_SAFE_INTEGER));
}
