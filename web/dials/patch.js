// A unified diff of exactly the literal, as `git apply` and `patch -p1` take it. What stands around it
// was cut into lines at LF alone, as both do, so that a carriage return stays where it is.

/** @param {{path: string, first: number, before: string[], head: string, tail: string, after: string[], ends: boolean}} hunk */
export function patch(hunk, number) {
  const { path, first, before, head, tail, text, after, ends } = hunk;
  const count = before.length + 1 + after.length;
  const tab = path.includes(" ") ? "\t" : "";
  const end = ends ? [] : ["\\ No newline at end of file"];
  const here = after.length ? [] : end;
  const lines = [
    `--- a/${path}${tab}`, `+++ b/${path}${tab}`, `@@ -${first},${count} +${first},${count} @@`,
    ...before.map((line) => ` ${line}`),
    `-${head}${text}${tail}`, ...here,
    `+${head}${number}${tail}`, ...here,
    ...after.map((line) => ` ${line}`),
    ...(after.length ? end : []),
  ];
  return `${lines.join("\n")}\n`;
}
