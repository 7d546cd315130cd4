// What makes one run slower than the other, in terms that add up.
import { Table } from "../document.js";
import { showTable } from "../table.js";
import { el, multiline } from "../text.js";
import { choice } from "./breakdown.js";

export const compare = { id: "compare", title: "Compare", uses: [], available: ({ comparison }) => comparison !== null && comparison !== undefined, render };

const AXES = ["layer", "op", "signature", "source"];

function render(host, app) {
  const { comparison: found } = app.doc;
  host.append(el("h2", {}, "Compare"));
  host.append(el("p", { class: "hint" }, "Differences are B less A per step, of the whole recordings, whatever is selected. A difference whose interval holds 0 may be chance."));
  if (found.verdict?.length) host.append(el("ul", { class: "verdict" }, ...found.verdict.map((line) => el("li", {}, multiline(line)))));
  const said = (found.verdict ?? []).join("\n");
  list(host, "They may not be comparable", found.comparable?.filter((line) => !said.includes(line)));
  terms(host, app, "Terms", new Table(found.terms));
  const axes = AXES.filter((axis) => axis in (found.by ?? {}));
  const axis = axes.includes(app.state.get("by")) ? app.state.get("by") : axes[0];
  if (!axis) return;
  const tools = [choice("by", axis, axes.map((name) => [name, name]), (by) => app.state.go({ by, sort: null }))];
  terms(host, app, `By ${axis}`, new Table(found.by[axis]), tools);
}

function list(host, title, lines) {
  if (lines?.length) host.append(el("h3", {}, title), el("ul", { class: "problems" }, ...lines.map((line) => el("li", {}, multiline(line)))));
}

function terms(host, app, title, table, tools = []) {
  host.append(el("h3", {}, title));
  const isText = (name) => table.column(name).isText;
  const rows = table.records().map((row, index) => ({ ...row, _index: index }));
  app.view = showTable(host, app, {
    label: title,
    columns: table.names.map((name) => ({ name, text: isText(name), minWidth: isText(name) ? 140 : 100 })),
    rows,
    tools,
    totals: (data) => ({ delta_ns: data.reduce((sum, row) => sum + (row.delta_ns ?? 0), 0) }),
    empty: "Nothing differs.",
    quiet: title === "Terms",
  });
}
