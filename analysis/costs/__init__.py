"""Formulas for the FLOPs and bytes of ops, and the registry that finds them."""

from __future__ import annotations

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
    names,
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
    triton,
    vision,
)
from pyprof2.analysis.costs.extensions import load_extensions
from pyprof2.analysis.costs.registry import (
    CATEGORIES,
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
    has_formula,
    is_composite,
    is_product,
    is_view,
    registered_ops,
    sparse_inputs,
)
from pyprof2.analysis.costs.views import REDUCING_OPS, VIEWED_OPS, seen_in_views

FAMILIES: Final = (
    matmul, linalg, conv, attention, norm, softmax_loss, pointwise, reduce, copies, index,
    embedding, pool, optimizer, rnn, fft, random, comm, sharding, fbgemm, quantised,
    experts, vision, state_space, triton, templates, names,
)  # fmt: skip
"""The modules whose import fills the registry."""

__all__ = [
    "CATEGORIES",
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
    "has_formula",
    "is_composite",
    "is_product",
    "is_view",
    "load_extensions",
    "registered_ops",
    "seen_in_views",
    "sparse_inputs",
]
