"""Facts of a recording about the model that a server ran, and whether a model agrees with them.

A fact is a set of the values that were recorded of a quantity. Sizes are those of products with
weights whose kind is known, of queries and keys of attention, and of the rows of logits; the number
of layers is that of the stretches of attention in a step, between which other products are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.serving.batches import DECODE, MIXED, PREFILL
from pyprof2.analysis.serving.kinds import (
    ATTENTION,
    DOWN,
    EXPERTS,
    GATE_UP,
    KINDS,
    KV_WRITE,
    LM_HEAD,
    OUT,
    QKV,
    ROUTER,
)
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.serving.models import LanguageModel
    from pyprof2.analysis.serving.steps import StepsWork

COLUMNS: Final = ("kernel", "signature", "layer")
"""The columns of kernels that facts follow from, beside those of kinds."""
LAYERS: Final = "layers"
VOCABULARY: Final = "vocabulary"
HIDDEN: Final = "hidden size"
HEADS: Final = "heads"
KV_HEADS: Final = "heads of keys"
HEAD_SIZE: Final = "size of a head"
EXPERT_COUNT: Final = "experts"
_INNER: Final = "inner size"
CACHE_BITS: Final = "bits of the cache"
_ARCHITECTURE: Final = "architecture"

_TENSOR: Final = re.compile(r"\[(\d[\d,]*)\](?: (\w+))?")
_CLASS: Final = re.compile(r"(?:^|\.)(\w+For(?:CausalLM|ConditionalGeneration))_\d+")
_CACHE: Final = re.compile(r"Fp8KVCacheDataType\)(\d)")
_PAGED: Final = re.compile(r"[kK]v(E4m3|Bfloat16|Fp16)\w*?H(\d+)PagedKv")
_ARGMAX: Final = "aten::argmax("
_PRODUCTS: Final = ("aten::mm(", "aten::addmm(")
_SIDES: Final = 2
_BY_HEAD: Final = 3
"""Dimensions of a tensor of queries or keys: tokens, heads, size."""
_LEAST_VOCAB: Final = 20_000
_PADDED_TO: Final = 128
_WHOLE: Final = (PREFILL, MIXED, DECODE)
"""Phases in which all of the model runs once."""
_ALSO: Final = {"MistralForCausalLM": "LlamaForCausalLM"}
"""Architectures that servers run by the class of another."""
_MANY_STEPS: Final = 3
_BITS: Final = {"bf16": 16, "f16": 16, "u8": 8, "f8e4m3fn": 8, "f8e4m3fnuz": 8, "f8e5m2": 8}

Facts = dict[str, set[int | str]]


class Expected(NamedTuple):
    """The values of a quantity that a recording of a model has.

    Attributes:
        shown: the value of its configuration.
        right: those that a recording may have.
    """

    shown: int | str
    right: frozenset[int | str]


def recorded_facts(kernels: pa.Table, kinds: Int, work: StepsWork) -> Facts:
    """Return what the kernels of a rank say of the model.

    Args:
        kernels: with the columns of kinds and `COLUMNS`.
        kinds: their kinds; see `kinds.kinds_of`.
        work: the steps, and which they belong to.
    """
    found: Facts = {LAYERS: set(_layers(kernels, kinds, work))}
    codes, signatures = code_column(kernels, "signature")
    pairs = np.unique(np.stack([codes, kinds]), axis=1)
    for code, kind in pairs.T.tolist():
        if code >= 0:
            for name, value in _of_signature(KINDS[kind], signatures[code]):
                found.setdefault(name, set()).add(value)
    codes, names = code_column(kernels, "kernel")
    own = np.unique(codes[np.isin(kinds, [KINDS.index(each) for each in (ATTENTION, KV_WRITE)])])
    texts = [names[code] for code in own.tolist() if code >= 0]
    bits = [8 if each[1] != "0" else None for text in texts if (each := _CACHE.search(text))]
    paged = [each.groups() for text in texts if (each := _PAGED.search(text))]
    bits += [8 if kind == "E4m3" else 16 for kind, _ in paged]
    found.setdefault(HEAD_SIZE, set()).update(int(size) for _, size in paged)
    if any(bits):
        found.setdefault(CACHE_BITS, set()).update(each for each in bits if each)
    classes = {
        each[1] for path in code_column(kernels, "layer")[1] if (each := _CLASS.search(path))
    }
    if classes:
        found[_ARCHITECTURE] = set(classes)
    return {name: values for name, values in found.items() if values}


def _layers(kernels: pa.Table, kinds: Int, work: StepsWork) -> list[int]:
    """Return how often each step comes to attention from something else that has weights."""
    step, start = work.step[: len(kinds)], int_column(kernels, "start_ns", -1)
    products = [KINDS.index(each) for each in (QKV, OUT, GATE_UP, DOWN, EXPERTS, ROUTER, "linear")]
    is_attention = kinds == KINDS.index(ATTENTION)
    rows = np.flatnonzero((step >= 0) & (is_attention | np.isin(kinds, products)))
    rows = rows[np.lexsort((start[rows], step[rows]))]
    if not is_attention.any():
        return []
    begins = is_attention[rows].copy()
    begins[1:] &= ~is_attention[rows[:-1]] | (step[rows[1:]] != step[rows[:-1]])
    counts = np.bincount(step[rows[begins]], minlength=len(work.batches)).tolist()
    own = [n for n, each in zip(counts, work.batches, strict=True) if n and each.phase in _WHOLE]
    # The recording may begin in the first step, and end in the last.
    return own[1:-1] if len(own) > _MANY_STEPS else own


_OF_PRODUCT: Final = {
    QKV: (HIDDEN, None), GATE_UP: (HIDDEN, None), ROUTER: (HIDDEN, EXPERT_COUNT),
    LM_HEAD: (HIDDEN, VOCABULARY), OUT: (None, HIDDEN), DOWN: (_INNER, HIDDEN),
}  # fmt: skip
"""The sides of the weights of each kind: that which is summed over, and the other."""


def _of_signature(kind: str, text: str) -> Iterator[tuple[str, int]]:
    """Yield the facts that a kernel's op and its tensors say."""
    tensors = _TENSOR.findall(text)
    shapes = [tuple(map(int, sizes.split(","))) for sizes, _ in tensors]
    dtypes = [dtype for _, dtype in tensors]
    if text.startswith(_ARGMAX) and shapes and shapes[0][-1] >= _LEAST_VOCAB:
        yield VOCABULARY, shapes[0][-1]
    if text.startswith(_PRODUCTS):
        # The last two are what is multiplied; before them may be what is added.
        *_, left, right = [(), (), *(shape for shape in shapes if len(shape) == _SIDES)]
        if left and left[1] == right[0]:
            names = _OF_PRODUCT.get(kind, (None, None))
            yield from ((name, size) for name, size in zip(names, right, strict=True) if name)
    deep = [shape for shape in shapes if len(shape) == _BY_HEAD]
    if kind == ATTENTION and deep:
        # Queries are the first; results have their shape too.
        (_, heads, size), *others = deep
        keys = {shape[1] for shape in others if shape[2] == size and shape[1] < heads}
        if len(keys) == 1 and not heads % min(keys):
            yield from ((HEADS, heads), (KV_HEADS, min(keys)), (HEAD_SIZE, size))
    if kind == KV_WRITE and len(dtypes) > _BY_HEAD and dtypes[2] in _BITS:
        yield CACHE_BITS, _BITS[dtypes[2]]


def expected_of(model: LanguageModel) -> dict[str, Expected]:
    """Return the facts that a recording of a model may say, by their names."""
    found = {
        LAYERS: _only(model.layers),
        VOCABULARY: vocabulary(model.vocab, model.shards),
        HIDDEN: _only(model.hidden),
        EXPERT_COUNT: _only(model.experts),
        _ARCHITECTURE: Expected(
            model.architecture,
            frozenset({model.architecture, _ALSO.get(model.architecture, model.architecture)}),
        ),
    }
    if model.mlp_size:
        found[_INNER] = _only(model.mlp_size)
    if model.latent is None:
        found |= {
            HEADS: _only(model.heads), KV_HEADS: _only(model.kv_heads),
            HEAD_SIZE: _only(model.key_size),
        }  # fmt: skip
    if model.cache_bits is not None:
        found[CACHE_BITS] = _only(model.cache_bits)
    return found


def _only(value: int | str) -> Expected:
    return Expected(value, frozenset({value}))


def vocabulary(size: int, shards: int) -> Expected:
    """Return the rows of logits: all, or a rank's part, each with some to make it even."""
    own = {size, -(-size // shards)}
    return Expected(size, frozenset(each + more for each in own for more in range(_PADDED_TO)))


def contradictions(facts: Facts, expected: Mapping[str, Expected]) -> list[str]:
    """Return each fact that a model cannot have, with both sides."""
    return [
        f"{name}: recorded {listed(facts[name])}, configuration {each.shown}"
        for name, each in expected.items()
        if facts.get(name, set()) - each.right
    ]


def listed(values: Iterable[int | str]) -> str:
    """Return values in order, as text."""
    return ", ".join(map(str, sorted(values, key=lambda each: (isinstance(each, str), each))))
