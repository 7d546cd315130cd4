/** The dials in a panel: the server's own page; all that is done here is to pass its messages on. */
import * as vscode from "vscode";

interface Page {
  ok: boolean;
  text: string;
  html?: string;
}

interface Question {
  pyprof2: "ask";
  id: number;
  message: unknown;
}

/** Show the page, or say why there is none. */
export async function showDials(): Promise<void> {
  const page = await vscode.commands.executeCommand<Page | undefined>("pyprof2.dialsPage");
  if (!page?.html) {
    void vscode.window.showWarningMessage(`pyprof2: ${page?.text ?? "the server does not run"}`);
    return;
  }
  const shown = vscode.window.createWebviewPanel(
    "pyprof2.dials",
    "pyprof2: dials",
    { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
    { enableScripts: true, localResourceRoots: [], retainContextWhenHidden: true },
  );
  shown.webview.onDidReceiveMessage(async ({ pyprof2, id, message }: Question) => {
    if (pyprof2 !== "ask") return;
    const answer = await vscode.commands.executeCommand("pyprof2.dialsAsk", message);
    void shown.webview.postMessage({ pyprof2: "answer", id, answer });
  });
  shown.webview.html = page.html;
}
