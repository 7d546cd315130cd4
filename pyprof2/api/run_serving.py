"""A run of an inference server: its steps, their kinds of layer, and what the model costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pyprof2.api.run_tables import kept
from pyprof2.columns import as_pandas, lookup, row_of
from pyprof2.errors import refuse
from pyprof2.units import counted

if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Mapping

    import pandas as pd

    from pyprof2.analysis.serving.costs import ServedRank
    from pyprof2.analysis.serving.models import LanguageModel
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables


@kept
def is_of_server(tables: RunTables) -> bool:
    """Whether ranges are named as an inference server names its steps."""
    from pyprof2.analysis.serving.generate import names_steps

    return any(names_steps(rank.read("ranges", ["name"])) for rank in tables.ranks)


def serving_table(tables: RunTables, pattern: str | None = None) -> pa.Table:
    """Return `serving_steps` as an Arrow table, which takes no pandas."""
    from pyprof2.analysis.serving.steps import INPUT, serving_steps

    wanted, ranks = _compiled(pattern), tables.ranks
    parts = [serving_steps(_read(rank, INPUT), rank.rank, wanted) for rank in ranks]
    return pa.concat_tables(parts).unify_dictionaries()


def serving_steps(tables: RunTables, pattern: str | None = None) -> pd.DataFrame:
    """Return the steps of an inference server; see `Run.serving_steps`."""
    return as_pandas(serving_table(tables, pattern), ("rank",))


@kept
def _served_ranks(tables: RunTables, pattern: str | None) -> list[ServedRank]:
    """Return what each rank did for a server."""
    from pyprof2.analysis.serving.costs import INPUT, served_rank

    wanted, ranks = _compiled(pattern), tables.ranks
    return [served_rank(_read(rank, INPUT), rank.rank, wanted) for rank in ranks]


def with_phases(tables: RunTables, idle: pd.DataFrame) -> pd.DataFrame:
    """Return rows of idle time with the phase of the server's step whose work ended each.

    Args:
        tables: of the run.
        idle: with `rank` and `kernel_id`; null is in no phase, as what no step launched is.
    """
    import pandas as pd

    from pyprof2.analysis.serving.steps import OUTSIDE

    phase = pd.Series(OUTSIDE, idle.index, object)
    for rank in _served_ranks(tables, None):
        names = np.array([*(batch.phase for batch in rank.work.batches), OUTSIDE], object)
        own = (idle["rank"] == rank.rank).to_numpy(bool)
        wanted = idle.loc[own, "kernel_id"].to_numpy("int64", na_value=-1)
        order = np.argsort(rank.kernel_id)
        at = row_of(rank.kernel_id[order], wanted)
        step = lookup(rank.work.step[order], at, -1)
        phase[own] = names[step]
    return idle.assign(phase=phase)


def check_shards(tables: RunTables, shards: int | None) -> None:
    """Raise unless the job that was recorded has so many processes to share a model.

    Raises:
        UsageError: it has fewer.
    """
    sizes = set(tables.table("trace")["world_size"].to_pylist())
    if shards is not None and sizes and None not in sizes and shards > max(sizes):
        refuse(
            f"--tp {shards}: the recorded job has {counted(max(sizes), 'process', 'processes')}"
            f", so no more share the model: --tp {max(sizes)}"
        )


def _served_model(
    tables: RunTables, config: Path, shards: int | None, pattern: str | None
) -> tuple[LanguageModel, list[str]]:
    """Return the model of a configuration, and what of it the recording says too."""
    from pyprof2.analysis.serving.costs import all_facts, check_model, with_cache
    from pyprof2.analysis.serving.facts import HEADS
    from pyprof2.analysis.serving.models import read_model

    check_shards(tables, shards)
    facts = all_facts(_served_ranks(tables, pattern))
    if shards is None and set(tables.table("trace")["world_size"].to_pylist()) != {1}:
        heads, of_model = facts.get(HEADS, set()), read_model(config, 1).heads
        shards = of_model // int(next(iter(heads))) if len(heads) == 1 else None
        if not shards:
            refuse("the job may have several processes: how many share the model? --tp N")
    model = read_model(config, shards or 1)
    held = check_model(model, facts)
    return with_cache(model, facts), held


def serving_costs(
    tables: RunTables, config: Path | str, tp: int | None = None, pattern: str | None = None
) -> pd.DataFrame:
    """Return `serving_steps` with the FLOPs and bytes of each step by the model.

    Args:
        tables: of the run.
        config: `config.json` of Hugging Face.
        tp: how many ranks share the model's tensors; None: one, if the job has one process.
        pattern: as for `serving_steps`.

    Returns:
        Its rows and, of one rank, `flops_least`, `flops_most` (products, causal attention; 2
        for a multiply-add), `bytes_least`, `bytes_most` (weights, keys and values, queries and
        results of attention); null: the name does not say enough. `attrs["checked"]` lists what
        the configuration and the recording agree on.

    Raises:
        UsageError: the configuration is of another model than the recording, or cannot be held
            against it; or `tp` is needed.
    """
    import pandas as pd

    from pyprof2.analysis.serving.costs import COLUMNS, costs_of_step, experts_touched, ridge_of

    steps, device = serving_steps(tables, pattern), tables.peaks
    model, held = _served_model(tables, Path(config), tp, pattern)
    ranks = _served_ranks(tables, pattern)
    kind = next((each.expert_type for each in ranks if each.expert_type), None)
    plain = steps.astype(object).where(steps.notna(), None).to_dict("records")
    rows = [
        costs_of_step(model, {str(name): row[name] for name in row}, device, kind) for row in plain
    ]
    found = steps.join(pd.DataFrame(rows, steps.index, COLUMNS, "Float64"))
    found.attrs = {
        "checked": held,
        "shards": model.shards,
        "cache_bits": model.cache_bits,
        "ridge": ridge_of(device),
        "experts": (model.experts, experts_touched(ranks, model)),
    }
    return found


def serving_kinds(
    tables: RunTables,
    config: Path | str | None = None,
    tp: int | None = None,
    pattern: str | None = None,
    *,
    rank: int | None = None,
) -> pd.DataFrame:
    """Return the time and work of an inference server by phase and kind of layer.

    Args:
        tables: of the run.
        config: as for `serving_costs`; None: FLOPs and bytes are those that shapes of ops say.
        tp: as for `serving_costs`.
        pattern: as for `serving_steps`.
        rank: of only this one; None: all.

    Returns:
        Table `SERVING_KINDS`; no rows without steps of a server.

    Raises:
        UsageError: as `serving_costs`.
    """
    import pandas as pd

    from pyprof2.analysis.serving.costs import kinds_of_phases
    from pyprof2.result_tables import SERVING_KINDS

    model = None if config is None else _served_model(tables, Path(config), tp, pattern)[0]
    ranks = [each for each in _served_ranks(tables, pattern) if rank in (None, each.rank)]
    has_steps = any(each.work.batches for each in ranks)
    rows = kinds_of_phases(ranks, model, tables.peaks) if has_steps else []
    found = pd.DataFrame(rows, columns=SERVING_KINDS.names)
    return found.assign(share_pct=100 * found["device_ns"] / found["device_ns"].sum())


def serving_models(
    tables: RunTables, pattern: str | None = None
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return what the recording says of the model that was served, and who it may be.

    Args:
        tables: of the run.
        pattern: as for `serving_steps`.

    Returns:
        The values recorded of each quantity, and the names of known models of which none
        contradicts them: any of them, or another one, was served.
    """
    from pyprof2.analysis.serving.costs import all_facts
    from pyprof2.analysis.serving.known_models import not_contradicted

    facts = all_facts(_served_ranks(tables, pattern))
    return {name: sorted(facts[name], key=str) for name in facts}, not_contradicted(facts)


def _read(rank: RankTables, needed: Mapping[str, Collection[str] | None]) -> dict[str, pa.Table]:
    """Return the tables of a rank that its steps are made of."""
    from pyprof2.analysis.serving.steps import input_of

    return rank.several(input_of(rank.read("ranges", ["name"]), needed))


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    from pyprof2.analysis.summaries.profile_columns import compile_pattern

    return None if pattern is None else compile_pattern(pattern)
