// Who is asked for the model and changes the code: an editor's panel, or the server that this page
// comes from. A page that stands alone has nobody. The messages are in docs/editors.rst.

/** An editor's webview: messages go to the panel, and the panel's come back. */
class Panel {
  constructor(api) {
    this.api = api;
    this.waiting = new Map();
    this.last = 0;
    window.addEventListener("message", ({ data }) => this.hear(data));
  }

  ask(message) {
    this.last += 1;
    const id = this.last;
    this.api.postMessage({ pyprof2: "ask", id, message });
    return new Promise((resolve) => this.waiting.set(id, resolve));
  }

  hear(data) {
    if (data?.pyprof2 !== "answer") return;
    this.waiting.get(data.id)?.(data.answer);
    this.waiting.delete(data.id);
  }
}

/** The server of the editor, on loopback: the word that it knows is in the fragment, once. */
class Served {
  constructor(token) {
    this.token = token;
  }

  async ask(message) {
    const headers = { "Content-Type": "application/json", "X-Pyprof2-Token": this.token };
    const body = JSON.stringify(message);
    const found = await fetch("/ask", { method: "POST", headers, body, cache: "no-store" });
    if (!found.ok) throw new Error(`the server refuses: ${found.status} ${await found.text()}`);
    return found.json();
  }
}

/** The word in the fragment, which is then erased from the address. */
function takenToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("t");
  history.replaceState(null, "", location.pathname);
  return token;
}

/** Who is asked. Throws where somebody should be, and the way there is not known. */
export function hostOf() {
  if (typeof acquireVsCodeApi === "function") return new Panel(acquireVsCodeApi());
  const token = takenToken();
  if (!token) throw new Error("open this page from the editor again, with pyprof2.dials: its address is good for once");
  return new Served(token);
}
