"""The rows of a run: kernels and copies, or ops; one by one, and added up along axes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.api.run_tables import kept
from pyprof2.columns import shifted
from pyprof2.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Bool
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.sums import Read
    from pyprof2.analysis.summaries.totals import Totals
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables

_LARGEST_BLOCK: Final = 31 << 20
"""Bytes: above 32 MiB the C library keeps none."""


@kept
def stored_sums(tables: RunTables) -> Sums | None:
    """The sums that `parse` made of the rows of axis `kernel`.

    None where it did not: there is no GPU activity, there would be too many sums, or an older
    version wrote the store; and where the lines or roofs of the rows are to be others.
    """
    return _stored(tables)


def _stored_along(tables: RunTables, keys: Collection[str]) -> Sums | None:
    """Return the sums of the store that have all these keys."""
    from pyprof2.analysis.summaries.sum_tables import AXIS_KEYS

    usual = stored_sums(tables)
    if usual is None or usual.keys.keys() >= {*keys}:
        return usual
    needed = {"stack_id" if name == "stack" else name for name in keys} - {"rank"}
    axis = next((name for name, own in AXIS_KEYS.items() if needed.issubset(own)), None)
    return None if axis is None else _stored(tables, axis, with_stack="stack" in keys)


def _stored(tables: RunTables, axis: str | None = None, *, with_stack: bool = False) -> Sums | None:
    """Return the sums of the store that have the usual keys, or those of an axis of others."""
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.sum_tables import sums_stored, with_stacks

    names = ("sums", "sum_calls") if axis is None else ("axis_sums", "axis_sum_calls")
    ranks = [rank for rank, totals in tables.counted if totals.has_gpu]
    if not all(rank.has_sums(name) for rank in ranks for name in names):
        return None
    found = []
    for rank in ranks:
        of_rank = sums_stored(rank.read(names[0]), rank.read(names[1]), axis)
        if of_rank is None:
            where = tables.path / names[0]
            msg = f"{where}: names rows that do not exist; "
            raise StoreError(msg + "make it anew with 'pyprof2 parse --force'")
        found.append(with_stacks(of_rank, rank.read("stacks")) if with_stack else of_rank)
    is_whole = found and all(len(each.helps) for each in found)
    return Sums.together(found) if is_whole else None


def sums_of(
    tables: RunTables, keys: Collection[str], *, means: Sequence[str] = (), **selection: Any
) -> Sums:
    """Return the rows of axis `kernel` added up by some columns, stored or found now.

    Args:
        tables: of the run.
        keys: the columns, of those of the profile and of
            `pyprof2.analysis.summaries.rows.HIDDEN`.
        means: of which of `MEANS` to have the sums.
        **selection: which rows, see `pyprof2.analysis.summaries.profile.fits`.

    Raises:
        UsageError: a regular expression is malformed, or the steps are out of order.
    """
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.profile_columns import columns_of
    from pyprof2.analysis.summaries.sum_tables import ALWAYS

    stored = None if means else _stored_along(tables, {*keys, *columns_of(selection)})
    if stored is not None:
        return stored.select(**selection)
    every, counted = [*keys, *ALWAYS], tables.counted
    return Sums.together([_sums_of_rank(*each, every, selection, means) for each in counted])


def sums_apart(
    tables: RunTables, keys: Sequence[str], apart: Mapping[int, Collection[int]], most: int
) -> tuple[Sums, int]:
    """Return the rows added up by some columns, and how many steps are one in the sums.

    They are for a cube, and have no further keys, by which sums are summarized.

    Args:
        tables: of the run.
        keys: the columns, `step` among them.
        apart: by rank, the steps that are never one with others.
        most: with more combinations of keys than these, all others are one.
    """
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.sums import combination_count, with_steps_apart

    counted, count = tables.counted, 0
    for each in counted:
        count += combination_count(_reader(*each, keys), keys, most - count)
    if count <= most:
        return sums_of(tables, keys), 0
    others: set[tuple[int, int]] = set()
    parts = [
        _sums_of_rank(*each, keys, changed=partial(with_steps_apart, each[0].rank, apart, others))
        for each in counted
    ]
    return Sums.together(parts), len(others)


def rows_of(tables: RunTables, columns: Collection[str] | None = None) -> pd.DataFrame:
    """Return the rows of axis `kernel`: GPU activities, or op calls where there are none.

    Args:
        tables: of the run.
        columns: which to read, of those of the profile and of
            `pyprof2.analysis.summaries.rows.HIDDEN`; by default all.
    """
    from pyprof2.analysis.summaries import rows

    counted = tables.counted
    needed = {*(rows.ALL if columns is None else columns), "rank", "kernel_id"}
    if any(totals.has_gpu for _, totals in counted):
        needed.discard("rate_ns")
    parts = (
        shifted(part, tables.first_ids.get(rank.rank, {}))
        for rank, totals in counted
        for part in _reader(rank, totals, needed)([*needed])
    )
    count = sum(r.parts(name).row_count for r, _ in counted for name in ("kernels", "copies"))
    return rows.frame(parts, needed if columns is None else needed & {*columns}, count)


def with_calls(
    tables: RunTables,
    sums: pd.DataFrame,
    by: Sequence[str],
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
    **selection: Any,
) -> pd.DataFrame:
    """Return sums along axes with what is known of op calls; along axis `layer` of modules.

    Args:
        tables: of the run.
        sums: what `pyprof2.analysis.summaries.profile.Sums` gave along them.
        by: the axes.
        depth: as for `profile`.
        fold_numbers: as for `profile`.
        **selection: as for `profile`, by what op calls have.

    Raises:
        UsageError: it is selected by what only kernels have.
    """
    from pyprof2.analysis.summaries import call_sums, module_sums
    from pyprof2.analysis.summaries.profile import chosen
    from pyprof2.analysis.summaries.profile_columns import (
        AXES,
        check_selects_calls,
        columns_of,
    )

    of_modules = list(by) == ["layer"]
    check_selects_calls(selection, modules=of_modules)
    ranks = tables.counted_ranks
    if of_modules:
        needed = module_sums.NEEDED
        parts = [module_sums.module_calls(rank.several(needed), rank.rank) for rank in ranks]
        own = {name: selection.get(name) for name in ("rank", "layer")}
        return module_sums.with_modules(sums, parts, depth, fold_numbers=fold_numbers, **own)
    wanted = {*(AXES[axis] for axis in by), *columns_of(selection), "rank"}
    names = call_sums.op_columns(wanted)
    found = []
    for rank in ranks:
        read = rank.several({**call_sums.NEEDED, "ops": names})
        signatures = rank.read("signatures", ["signature"])
        calls = call_sums.op_calls(read, signatures, rank.read("stacks"), wanted)
        found.append(chosen(calls, **selection))
    every = pa.concat_tables(found).unify_dictionaries()
    return call_sums.with_calls(sums, every, by, depth, fold_numbers=fold_numbers)


def with_shares(
    tables: RunTables,
    sums: pd.DataFrame,
    column: str,
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
    **selection: Any,
) -> pd.DataFrame:
    """Return sums of ops, layers or lines with column `share_ns`, by which they are sorted.

    Args:
        tables: of the run.
        sums: what `pyprof2.analysis.summaries.profile.Sums` gave along one of these.
        column: `op`, `layer` or `source`.
        depth: as for `profile`.
        fold_numbers: as for `profile`.
        **selection: as for `profile`.
    """
    from pyprof2.analysis.summaries.owner_shares import owner_shares
    from pyprof2.analysis.summaries.profile import select
    from pyprof2.analysis.summaries.profile_columns import SHARE, row_columns_of

    wanted = {"rank", "kernel_id", "dur_ns", column, f"shared_{column}"}
    rows = select(rows_of(tables, wanted | row_columns_of(selection)), **selection)
    read = ("kernel_id", "rank", column, "bytes")
    parts = [
        shifted(rank.read("kernel_parts", read), tables.first_ids.get(rank.rank, {}))
        for rank, _ in tables.counted
    ]
    every = pa.concat_tables(parts).unify_dictionaries().to_pandas()
    times = owner_shares(rows, every, column, depth, fold_numbers=fold_numbers)
    share = sums[column].map(lambda name: times.get(name, 0)).astype("Int64")
    found = sums.assign(**{SHARE.name: share})
    return found.sort_values(SHARE.name, ascending=False, kind="stable", ignore_index=True)


def profile_along(
    tables: RunTables,
    axes: Sequence[str],
    depth: int | None,
    columns: Sequence[str],
    selection: Mapping[str, Any],
    *,
    fold_numbers: bool,
) -> pd.DataFrame:
    """Return what `pyprof2 prof` prints, along axes by their first names."""
    from pyprof2.analysis.axes import check_known_once
    from pyprof2.analysis.summaries.profile import frame, select
    from pyprof2.analysis.summaries.profile_columns import (
        AXES,
        MEANS,
        OF_OWNERS,
        SHARE,
        SUMMARY_COLUMNS,
        asked_columns,
        check_axes,
        row_columns_of,
        with_devices,
    )
    from pyprof2.tables import PROFILE_COLUMNS

    if axes == ["kernel"]:
        rows = rows_of(tables, {*PROFILE_COLUMNS, *row_columns_of(selection)})
        return select(rows, **selection)[[*PROFILE_COLUMNS]]
    axes = with_devices(axes, tables.summary["gpu_count"])
    check_axes(axes, depth, fold_numbers=fold_numbers)
    check_known_once(columns, [c.name for c in asked_columns(axes)], "to ask for")
    means = [column.name for column in MEANS if column.name in columns]
    keys = [AXES[axis] for axis in axes]
    sums = sums_of(tables, keys, means=means, **selection)
    found = frame(sums.summarize(axes, depth, fold_numbers=fold_numbers, means=means))
    # Only recordings of compiled code have kernels that do the work of several.
    is_shared = "shared_ns" in found and bool((found["shared_ns"].fillna(0) > 0).any())
    owners = [c.name for c in OF_OWNERS] if is_shared else []
    found = found[[*keys, *(column.name for column in SUMMARY_COLUMNS), *owners, *means]]
    if SHARE.name in columns:
        found = with_shares(tables, found, keys[0], depth, fold_numbers=fold_numbers, **selection)
        means.append(SHARE.name)
    if len(columns) == len(means):
        return found
    every = with_calls(tables, found, axes, depth, fold_numbers=fold_numbers, **selection)
    return every[[*found.columns, *(name for name in columns if name not in means)]]


def _reader(rank: RankTables, totals: Totals, keys: Collection[str]) -> Read:
    """Return what gives the rows of a rank in parts, with some of their columns."""
    from pyprof2.analysis.summaries import rows

    beside = {name: rank.read(*of) for name, of in rows.BESIDE.items() if name in keys}

    def read(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        if totals.has_gpu:
            return rows.activity_parts(rank.in_parts, columns, beside, keep)
        ops = rank.read("ops", rows.op_columns(columns))
        texts = rank.read("signatures", ["signature"])
        return iter([rows.op_rows(ops, texts, rank.devices(), rank.device, columns, beside)])

    return read


def _sums_of_rank(
    rank: RankTables,
    totals: Totals,
    keys: Collection[str],
    selection: Mapping[str, Any] | None = None,
    means: Sequence[str] = (),
    changed: Callable[[Read], Read] = lambda read: read,
) -> Sums:
    """Return the rows of a rank added up."""
    from pyprof2.analysis.summaries.sums import sums_of_rank

    op_count = rank.parts("ops").row_count if totals.has_gpu else None
    # The C library gives freed blocks back to the system, which clears each page before it
    # gives it anew, unless a larger one was freed before: a fifth of the time for all parts.
    np.empty(_LARGEST_BLOCK, np.uint8)
    read = changed(_reader(rank, totals, keys))
    return sums_of_rank(read, keys, rank.rank, op_count=op_count, selection=selection, means=means)


@kept
def ledger(tables: RunTables) -> pd.DataFrame:
    """Return all GPU time, without a GPU all op time, by what is known of the work.

    See `pyprof2.analysis.summaries.ledger.of_tables`.
    """
    from pyprof2.analysis.summaries.ledger import merge_ledgers

    return merge_ledgers([rank.read("ledger").to_pandas() for rank, _ in tables.counted])


@kept
def tensor_core_pct(tables: RunTables) -> float | None:
    """Return the share of the kernels' time that used Tensor Cores, of those with a verdict."""
    share: float | None = sums_of(tables, ()).total()["tensor_core_pct"]
    return share


def time_by(tables: RunTables, column: str) -> dict[str, int]:
    """Return the time of the rows of axis `kernel` by a text, in the order in which they come.

    Args:
        tables: of the run.
        column: `category`, `copy_kind`, `op`, or `tensor_core` where nothing was added up.
    """
    return sums_of(tables, (column,)).time_by(column)
