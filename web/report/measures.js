// The columns of `pyprof2 prof` for many groups of rows at once, made of the sums of the document
// as its `columns` say. A rate is a sum over a sum of the rows that know both, never a mean.

/**
 * The columns of each group.
 * @param {import("./cube.js").Cube} cube
 * @param {Int32Array} groupOf the group of each row of the cube, -1: none
 * @param {number} count how many groups there are
 * @param {number} whole the time that shares are of, in ns
 * @returns {object[]} by name of the column
 */
export function measureGroups(cube, groupOf, count, whole) {
  const found = Array.from({ length: count }, () => ({}));
  const task = { cube, groupOf, count, whole };
  for (const column of cube.columns) {
    const values = BY_KIND[Object.keys(column.of).find((key) => key in BY_KIND)](task, column);
    const known = knownGroups(task, column.of);
    values.forEach((value, group) => (found[group][column.name] = known(group) ? value : null));
  }
  return found;
}

/** How a column is made, by what its `of` has. */
const BY_KIND = {
  sum: (task, column) => added(task, column.of.sum),
  min: (task, column) => extreme(task, column.of.min, Math.min),
  max: (task, column) => extreme(task, column.of.max, Math.max),
  share: (task, { of }) => added(task, of.share).map((sum) => (task.whole > 0 ? ((sum ?? 0) / task.whole) * of.scale : null)),
  ratio: ratios,
  calls: opCalls,
};

/** Whether a column is known of a group: all counts in `known` are above 0, where `among` is. */
function knownGroups(task, { known, among }) {
  if (!known) return () => true;
  const [could, ...found] = [among, ...known].map((name) => added(task, name));
  return (group) => !could[group] || found.every((counts) => counts[group] > 0);
}

function added({ cube, groupOf, count }, name) {
  const { values } = cube.table.column(name);
  const sums = new Array(count).fill(null);
  for (let row = 0; row < groupOf.length; row += 1) {
    const group = groupOf[row];
    if (group >= 0 && values[row] !== null) sums[group] = (sums[group] ?? 0) + values[row];
  }
  return sums;
}

function extreme({ cube, groupOf, count }, name, pick) {
  const { values } = cube.table.column(name);
  const found = new Array(count).fill(null);
  for (let row = 0; row < groupOf.length; row += 1) {
    const group = groupOf[row];
    if (group < 0 || values[row] === null) continue;
    found[group] = found[group] === null ? values[row] : pick(found[group], values[row]);
  }
  return found;
}

function ratios(task, column) {
  const [above, below] = column.of.ratio.map((name) => {
    const sums = added(task, name);
    addHelpers(task, name, sums);
    return sums;
  });
  return above.map((sum, group) => (below[group] ? column.of.scale * (sum / below[group]) : null));
}

/** The time of kernels that only help counts where the work that they help with does. */
function addHelpers({ groupOf, cube }, name, sums) {
  const { rows, sets, columns } = cube.helpers;
  if (!(name in columns)) return;
  rows.forEach((row, entry) => {
    const group = groupOf[row];
    if (group < 0) return;
    if (sets.members(entry).some((member) => groupOf[member] === group)) sums[group] = (sums[group] ?? 0) + columns[name][entry];
  });
}

/** Each op call counts once in each group that has a kernel of it. */
function opCalls({ cube, groupOf, count }) {
  const sums = new Array(count).fill(0);
  const { calls, sets } = cube.calls;
  for (let entry = 0; entry < calls.length; entry += 1) {
    const found = new Set();
    for (const row of sets.members(entry)) found.add(groupOf[row]);
    found.delete(-1);
    for (const group of found) sums[group] += calls[entry];
  }
  return sums;
}
