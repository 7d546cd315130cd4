"""Formulas for the FLOPs and bytes of ops, and the registry that finds them.

A package that has operators of its own names the module that registers their formulas as an entry
point, and it is imported before costs are looked up::

    [project.entry-points."pyprof2.costs"]
    mylib = "mylib.costs"
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from pyprof2.analysis.costs import (
    attention,
    comm,
    conv,
    copies,
    embedding,
    experts,
    fbgemm,
    fft,
    index,
    linalg,
    matmul,
    norm,
    optimizer,
    pointwise,
    pool,
    quantised,
    random,
    reduce,
    rnn,
    sharding,
    softmax_loss,
    state_space,
    templates,
    trainers,
    triton,
    vision,
)
from pyprof2.analysis.costs.registry import (
    NO_EVIDENCE,
    Cost,
    Estimate,
    Evidence,
    UnknownCostError,
    category_of,
    cost_of,
    cost_with_evidence,
    estimate,
    formula_of,
    formula_text,
    has_formula,
    is_composite,
    is_product,
    is_view,
    lacks_types,
    registered_ops,
    sparse_inputs,
)
from pyprof2.analysis.costs.views import REDUCING_OPS, VIEWED_OPS, seen_in_views
from pyprof2.errors import TerminatedError
from pyprof2.problems import FORMULAS_NOT_LOADED, with_detail

FAMILIES: Final = (
    matmul, linalg, conv, attention, norm, softmax_loss, pointwise, reduce, copies, index,
    embedding, pool, optimizer, rnn, fft, random, comm, sharding, fbgemm, quantised,
    experts, vision, state_space, triton, templates, trainers,
)  # fmt: skip
"""The modules whose import fills the registry."""

__all__ = [
    "FAMILIES",
    "NO_EVIDENCE",
    "REDUCING_OPS",
    "VIEWED_OPS",
    "Cost",
    "Estimate",
    "Evidence",
    "UnknownCostError",
    "category_of",
    "cost_of",
    "cost_with_evidence",
    "estimate",
    "formula_of",
    "formula_text",
    "has_formula",
    "is_composite",
    "is_product",
    "is_view",
    "lacks_types",
    "load_extensions",
    "registered_ops",
    "seen_in_views",
    "sparse_inputs",
]

_GROUP: Final = "pyprof2.costs"


@cache
def load_extensions() -> tuple[str, ...]:
    """Import what other packages register, once; return the problems."""
    problems = []
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            point.load()
        except TerminatedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- code of others may do anything
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            detail = f"{point.name} ({point.value}) not loaded: {what}"
            problems.append(with_detail(FORMULAS_NOT_LOADED, detail))
    return tuple(problems)
