"""Facts for rules on inference servers: the steps of a rank, and what rules need of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.serving import kinds
from pyprof2.analysis.serving.steps import serving_steps, work_of_steps
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

_WEIGHTS: Final = (
    kinds.QKV, kinds.OUT, kinds.GATE_UP, kinds.DOWN, kinds.LM_HEAD, kinds.LINEAR,
)  # fmt: skip
"""Kinds whose weights are read once for all tokens of a step; experts are not all read."""


@dataclass(frozen=True)
class ServerFacts:
    """Steps of a rank of a server.

    Attributes:
        steps: rows of `serving_steps`, without what no step launched.
        weights_ns: of each step the time of products with weights.
        tail: of each step how long it lasts after what a graph launched, and how much of that no
            kernel of it runs; None: there is no graph, or no sampling after it.
    """

    steps: list[dict[str, Any]]
    weights_ns: Int
    tail: list[tuple[int, int] | None]

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table], rank: int) -> ServerFacts | None:
        """Return what a rank did; None: no step of a server is recorded."""
        rows = serving_steps(tables, rank).to_pylist()
        steps = [row for row in rows if row["serving_step"] is not None]
        if not steps:
            return None
        work, kernels = work_of_steps(tables), tables["kernels"]
        step, own_ns = (each[: kernels.num_rows] for each in (work.step, work.own_ns))
        kind = kinds.kinds_of(kernels, step)
        codes = [kinds.KINDS.index(name) for name in _WEIGHTS]
        own = (step >= 0) & np.isin(kind, codes)
        weights_ns = np.zeros(len(steps), np.int64)
        np.add.at(weights_ns, step[own], own_ns[own])
        start = int_column(kernels, "start_ns", 0)
        ends = start + int_column(kernels, "dur_ns", 0)
        tail: list[tuple[int, int] | None] = [None] * len(steps)
        by_graph = work.by_graph[: kernels.num_rows]
        sampling = kind == kinds.KINDS.index("sampling")
        for at in np.unique(step[(step >= 0) & by_graph]).tolist():
            rows_of = step == at
            last = int(ends[rows_of & by_graph].max())
            after = rows_of & ~by_graph & (start >= last)
            if (after & sampling).any():
                tail_ns = int(ends[after].max()) - last
                tail[at] = tail_ns, tail_ns - union_length(start[after], ends[after])
        return cls(steps, weights_ns, tail)

    def of_phases(self, *phases: str) -> list[int]:
        """Return the positions of the steps in these phases that have work."""
        return [
            at for at, row in enumerate(self.steps) if row["phase"] in phases and row["span_ns"]
        ]
