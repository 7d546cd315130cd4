"""A run of an inference server: its steps, their kinds of layer, and what the model costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyprof2.columns import as_pandas, lookup, row_of
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.serving.costs import ServedRank
    from pyprof2.analysis.serving.facts import Facts
    from pyprof2.analysis.serving.models import LanguageModel
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables


@dataclass
class RunServing:
    """The serving of a run: methods are what those of `Run` are, without `serving_`.

    Attributes:
        tables: of the run.
        find_device: returns what ran it; None: not known.
    """

    tables: RunTables
    find_device: Callable[[], Device | None]
    _ranks: dict[str | None, list[ServedRank]] = field(default_factory=dict)

    @cached_property
    def _device(self) -> Device | None:
        return self.find_device()

    @cached_property
    def is_there(self) -> bool:
        """Whether ranges are named as an inference server names its steps."""
        from pyprof2.analysis.serving.generate import names_steps

        return any(names_steps(rank.read("ranges", ["name"])) for rank in self.tables.ranks)

    def table(self, pattern: str | None) -> pa.Table:
        """Return the table `serving_steps`."""
        from pyprof2.analysis.serving.steps import INPUT, serving_steps

        wanted, ranks = _compiled(pattern), self.tables.ranks
        parts = [serving_steps(_read(rank, INPUT), rank.rank, wanted) for rank in ranks]
        return pa.concat_tables(parts).unify_dictionaries()

    def steps(self, pattern: str | None) -> pd.DataFrame:
        """Return the steps of an inference server."""
        return as_pandas(self.table(pattern), ("rank",))

    def ranks(self, pattern: str | None) -> list[ServedRank]:
        """Return what each rank did for a server."""
        from pyprof2.analysis.serving.costs import INPUT, served_rank

        if pattern not in self._ranks:
            wanted, ranks = _compiled(pattern), self.tables.ranks
            found = [served_rank(_read(rank, INPUT), rank.rank, wanted) for rank in ranks]
            self._ranks[pattern] = found
        return self._ranks[pattern]

    def facts(self, pattern: str | None) -> Facts:
        """Return what the recording says of the model."""
        from pyprof2.analysis.serving.costs import all_facts

        return all_facts(self.ranks(pattern))

    def phases_of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the phase of the step that launched the activity of each.

        Args:
            rows: with `rank` and `kernel_id`; null is in no phase, as what no step launched is.
        """
        import pandas as pd

        from pyprof2.analysis.serving.steps import OUTSIDE

        phase = pd.Series(OUTSIDE, rows.index, object)
        for rank in self.ranks(None):
            names = np.array([*(batch.phase for batch in rank.work.batches), OUTSIDE], object)
            own = (rows["rank"] == rank.rank).to_numpy(bool)
            wanted = rows.loc[own, "kernel_id"].to_numpy("int64", na_value=-1)
            order = np.argsort(rank.kernel_id)
            at = row_of(rank.kernel_id[order], wanted)
            step = lookup(rank.work.step[order], at, -1)
            phase[own] = names[step]
        return rows.assign(phase=phase)

    def known_models(self, pattern: str | None) -> list[str]:
        """Return the names of known models that the recording does not contradict."""
        from pyprof2.analysis.serving.known_models import not_contradicted

        return not_contradicted(self.facts(pattern))

    def model(
        self, config: Path, shards: int | None, pattern: str | None
    ) -> tuple[LanguageModel, list[str]]:
        """Return the model of a configuration, and what of it the recording says too."""
        from pyprof2.analysis.serving.costs import check_model, with_cache
        from pyprof2.analysis.serving.facts import HEADS
        from pyprof2.analysis.serving.models import read_model

        facts = self.facts(pattern)
        if shards is None and set(self.tables.table("trace")["world_size"].to_pylist()) != {1}:
            heads, of_model = facts.get(HEADS, set()), read_model(config, 1).heads
            shards = of_model // int(next(iter(heads))) if len(heads) == 1 else None
            if not shards:
                msg = "the job may have several processes: how many share the model? --tp N"
                raise UsageError(msg)
        model = read_model(config, shards or 1)
        held = check_model(model, facts)
        return with_cache(model, facts), held

    def costs(
        self, steps: pd.DataFrame, config: Path, shards: int | None, pattern: str | None
    ) -> pd.DataFrame:
        """Return FLOPs and bytes of the steps of an inference server."""
        import pandas as pd

        from pyprof2.analysis.serving.costs import COLUMNS, costs_of_step, experts_touched, ridge_of

        model, held = self.model(config, shards, pattern)
        ranks = self.ranks(pattern)
        kind = next((each.expert_type for each in ranks if each.expert_type), None)
        plain = steps.astype(object).where(steps.notna(), None).to_dict("records")
        rows = [
            costs_of_step(model, {str(name): row[name] for name in row}, self._device, kind)
            for row in plain
        ]
        costs = pd.DataFrame(rows, steps.index, COLUMNS, "Float64")
        costs.attrs = {
            "checked": held,
            "shards": model.shards,
            "cache_bits": model.cache_bits,
            "ridge": ridge_of(self._device),
            "experts": (model.experts, experts_touched(ranks, model)),
        }
        return costs

    def kinds(
        self, config: Path | None, shards: int | None, pattern: str | None, rank: int | None
    ) -> pd.DataFrame:
        """Return the phases and kinds of layer."""
        import pandas as pd

        from pyprof2.analysis.serving.costs import kinds_of_phases
        from pyprof2.result_tables import SERVING_KINDS

        model = None if config is None else self.model(config, shards, pattern)[0]
        ranks = [each for each in self.ranks(pattern) if rank in (None, each.rank)]
        has_steps = any(each.work.batches for each in ranks)
        rows = kinds_of_phases(ranks, model, self._device) if has_steps else []
        found = pd.DataFrame(rows, columns=SERVING_KINDS.names)
        return found.assign(share_pct=100 * found["device_ns"] / found["device_ns"].sum())


def _read(rank: RankTables, needed: Mapping[str, Collection[str] | None]) -> dict[str, pa.Table]:
    """Return the tables of a rank that its steps are made of."""
    from pyprof2.analysis.serving.steps import input_of

    return rank.several(input_of(rank.read("ranges", ["name"]), needed))


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    from pyprof2.analysis.summaries.profile_columns import compile_pattern

    return None if pattern is None else compile_pattern(pattern)
