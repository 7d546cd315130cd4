"""Steps of Hugging Face's `generate`: calls of a model in it, and the shapes in each.

It names no batch. Requests and new tokens are those of the first embedding in a call; the keys that
they attend to are those of its attention. A cache that does not grow has room for more than there
is: then the keys are known at most.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.serving.batches import (
    DECODE,
    DRAFT,
    EXTEND,
    PREFILL,
    VERIFY,
    Batch,
    batch_of,
)
from pyprof2.analysis.serving.batches import RequestSums as Sums
from pyprof2.columns import row_of
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.signatures import Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

INPUT: Final = {
    "ops": ("start_ns", "pid", "tid", "op", "signature_id"),
    "signatures": ("signature_id", "inputs"),
}
"""The columns of the canonical tables that shapes are in."""
_GENERATE: Final = re.compile(r"(?:^|[/\\])transformers[/\\]generation[/\\][^:]*: generate$")
_MODEL: Final = re.compile(r"\w+For(?:CausalLM|ConditionalGeneration)_\d+")
_EMBEDDING: Final = "aten::embedding"
_ATTENTION: Final = "aten::scaled_dot_product_attention"
_DIALECT: Final = "hf generate"
_NONE: Final = -1


class ModelCall(NamedTuple):
    """A call of a model in `generate`.

    Attributes:
        thread, start, end: when and where.
        batch: what it was of.
    """

    thread: tuple[int, int]
    start: int
    end: int
    batch: Batch


class _Shapes(NamedTuple):
    """The requests, new tokens and keys of a call, and how often it attends; None: not known."""

    requests: int | None
    tokens: int | None
    keys: int | None
    layers: int


def is_generating(names: Iterable[str]) -> bool:
    """Whether one of the names of ranges is a call of `generate`."""
    return any(_GENERATE.search(name) for name in names)


def names_steps(ranges: pa.Table) -> bool:
    """Whether a range, of which the name is asked for, is a step of a server's by its name.

    Or one of Hugging Face's `generate`, whose steps are in it.
    """
    _, names = code_column(ranges, "name")
    return any(batch_of(name) is not None for name in names) or is_generating(names)


def calls_in_generate(tables: Mapping[str, pa.Table]) -> list[ModelCall]:
    """Return the outermost calls of models in `generate`, in order of time.

    Args:
        tables: canonical ones of a rank, `ranges` and those of `INPUT`.
    """
    ranges = tables["ranges"]
    codes, names = code_column(ranges, "name")
    of_call, of_model = (
        np.array([bool(search(name)) for name in (*names, "")])[codes]
        for search in (_GENERATE.search, _MODEL.fullmatch)
    )
    of_model &= has_text(ranges, "kind", {"module"})
    start, dur, pid, tid = (
        int_column(ranges, name, _NONE) for name in ("start_ns", "dur_ns", "pid", "tid")
    )
    found: list[ModelCall] = []
    threads = sorted(set(zip(pid[of_call].tolist(), tid[of_call].tolist(), strict=True)))
    for thread in threads:
        here = (pid == thread[0]) & (tid == thread[1])
        outer, models = (
            _outermost(np.flatnonzero(here & each), start, dur) for each in (of_call, of_model)
        )
        place = np.searchsorted(start[outer], start[models], "right") - 1
        inside = (place >= 0) & (start[models] < (start + dur)[outer[place]])
        models, place = models[inside], place[inside]
        shapes = _shapes_in(tables, thread, start[models], (start + dur)[models])
        for call in np.unique(place).tolist():
            own = np.flatnonzero(place == call).tolist()
            instances = [names[codes[models[at]]] for at in own]
            batches = _batches(instances, [shapes[at] for at in own])
            for at, batch in zip(own, batches, strict=True):
                row = models[at]
                found.append(ModelCall(thread, int(start[row]), int((start + dur)[row]), batch))
    return sorted(found, key=lambda each: each.start)


def _outermost(rows: Int, start: Int, dur: Int) -> Int:
    """Return those of the rows, which nest, that are in no other, in order of time."""
    rows = rows[np.lexsort((-dur[rows], start[rows]))]
    ends = np.maximum.accumulate(np.append(_NONE, (start + dur)[rows]))[:-1]
    return rows[start[rows] >= ends]


def _shapes_in(
    tables: Mapping[str, pa.Table], thread: tuple[int, int], start: Int, end: Int
) -> list[_Shapes]:
    """Return the shapes in each of some stretches of time of a thread, which are apart."""
    ops, signatures = tables["ops"], tables["signatures"]
    wanted = {name: has_text(ops, "op", {name}) for name in (_EMBEDDING, _ATTENTION)}
    here = int_column(ops, "pid", _NONE) == thread[0]
    here &= int_column(ops, "tid", _NONE) == thread[1]
    rows = np.flatnonzero(here & (wanted[_EMBEDDING] | wanted[_ATTENTION]))
    begin = int_column(ops, "start_ns", _NONE)[rows]
    order = np.argsort(begin, kind="stable")
    rows, begin = rows[order], begin[order]
    at = row_of(
        int_column(signatures, "signature_id", _NONE), int_column(ops, "signature_id", _NONE)[rows]
    ).tolist()
    texts = signatures["inputs"]
    found = []
    bounds = np.searchsorted(begin, start).tolist(), np.searchsorted(begin, end).tolist()
    for first, last in zip(*bounds, strict=True):
        ids, keys = None, None
        layers = 0
        for place in range(first, last):
            text = texts[at[place]].as_py() if at[place] >= 0 else None
            tensors = [each for each in parse_inputs(text or "[]") if isinstance(each, Tensor)]
            shape = tensors[1].shape if len(tensors) > 1 else ()
            if wanted[_EMBEDDING][rows[place]]:
                ids = ids or shape
            else:
                layers += 1
                keys = keys or shape
        known = ids is not None and len(ids) == 2
        requests, tokens = ids if known and ids else (None, None)
        found.append(_Shapes(requests, tokens, keys[-2] if keys else None, layers))
    return found


def _batches(instances: Sequence[str], shapes: Sequence[_Shapes]) -> list[Batch]:
    """Return the batches of the calls in one `generate`, in order.

    Args:
        instances: the name of the model that was called.
        shapes: of each call.
    """
    pairs = list(zip(instances, shapes, strict=True))
    layers = {name: max(each.layers for n, each in pairs if n == name) for name in instances}
    most, before, found = max(layers.values()), dict.fromkeys(layers, 0), []
    for name, (requests, tokens, keys, _) in pairs:
        is_draft, has_draft = layers[name] < most, len(layers) > 1
        if requests is None or tokens is None:
            found.append(Batch(_DIALECT, DRAFT if is_draft else None, None))
            continue
        phase: str | None = DECODE if tokens == 1 else VERIFY if has_draft else EXTEND
        if keys is None:
            phase = DECODE if tokens == 1 else None
        elif keys == tokens:
            phase = PREFILL
        at_most = before[name] + tokens
        grows = keys is not None and (keys == tokens or before[name] < keys <= at_most)
        words = None
        if keys is not None and not grows:
            words = f"the cache does not grow: keys are at most {keys}"
        before[name] = keys or 0
        known = keys if grows else None
        own = Sums(
            requests, requests * tokens, None if known is None else requests * known,
            requests * tokens**2, None if known is None else requests * tokens * known,
        )  # fmt: skip
        none = Sums(0, 0, 0, 0, 0)
        both = (own, none) if phase in (PREFILL, EXTEND, None) else (none, own)
        phase = DRAFT if is_draft else phase
        found.append(Batch(_DIALECT, phase, requests, *both, contradiction=words))
    return found
