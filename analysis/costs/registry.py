"""The registry of cost formulas: from an op's call to its FLOPs and bytes.

A formula is a pure function from an `OpCall` to a `Cost`. It is registered under the names of
the ops that it covers; registering a name twice is an error. `estimate` finds and runs it::

    @cost_of("mylib::scale", category="elementwise")
    def scale(call: OpCall) -> Cost:
        x = tensor(call, 0)
        return tally(counted(x), read=[x], written=[x], dtype=x.dtype)

A name that ends in `*` covers all names that begin so.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from math import prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar

from pyprof2.errors import CostRegistrationError, TerminatedError
from pyprof2.problems import FORMULA_FAILED
from pyprof2.signatures import CATEGORIES, Input, OpCall, Tensor, nbytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Status: TypeAlias = Literal["ok", "assumed", "no_formula", "no_shapes"]

_INT64_END: Final = 2**63


@dataclass(frozen=True, slots=True)
class Cost:
    """The least work of one call of an op.

    Attributes:
        flops: operations; a multiply-add is 2.
        bytes_read: bytes of the operands, each once; None where an element type is not known.
        bytes_written: bytes of the results, each once; None where a type is not known.
        dtype: the type it computes in, in pyprof2's spelling (`f32`, `bf16`); None if no matter.
        params: the numbers that matter, such as `M=512,N=1024,K=768`.
        assumed: the assumptions in words; empty if the counts are exact.
        flops_lo, flops_hi, bytes_lo, bytes_hi: bounds where the truth depends on data or on
            what was not recorded; None: the same as the value.
        note: what bounds mean that are no assumption: the counts are exact by their definition.
        flops_formula, flops_numbers: how the FLOPs were computed, with the names of the sizes and
            with their values (`2·M·N·K`, `2·4·16·8`); empty if the formula does not say.
    """

    flops: int
    bytes_read: int | None
    bytes_written: int | None
    dtype: str | None = None
    params: str = ""
    assumed: str = ""
    flops_lo: int | None = None
    flops_hi: int | None = None
    bytes_lo: int | None = None
    bytes_hi: int | None = None
    note: str = ""
    flops_formula: str = ""
    flops_numbers: str = ""

    @property
    def bytes(self) -> int | None:
        """Read and written together; None where either is not known."""
        if self.bytes_read is None or self.bytes_written is None:
            return None
        return self.bytes_read + self.bytes_written

    @property
    def is_open(self) -> bool:
        """Whether a bound is another number than the value."""
        flops, traffic = (self.flops_lo, self.flops_hi), (self.bytes_lo, self.bytes_hi)
        return not {*flops} <= {None, self.flops} or not {*traffic} <= {None, self.bytes}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts about a call from elsewhere in the recording.

    Attributes:
        forward: the call of the forward op, for a backward op whose inputs lack something.
        output: shape and element type of the result: from the grad_output of the backward op, an
            op inside, or an input of the next op.
        indices: the index tensors of an op that recordings show without them.
        elements: the types that the kernels of an op with lists of tensors say they work on: one
            for all lists, or one for each; for ops that only move data it may be a size alone,
            `bits16`.
        element: the type that the kernels of an op whose tensors are all of one type say they work
            on, where no type is recorded.
        repeated: what the first input repeats along its other dimensions, where its strides are
            not recorded.
        following: the first tensor that the next call outside of any op got: perhaps the result.
        sparse: the shapes of tensors that ops inside read as sparse ones.
        stored: of the one sparse input what lies in memory: its indices, and last its values.
        described: of a collective the cost by the recorder's own description of it.
    """

    forward: OpCall | None = None
    output: Tensor | None = None
    indices: tuple[Tensor, ...] = ()
    elements: tuple[str, ...] = ()
    element: str | None = None
    repeated: Tensor | None = None
    following: Tensor | None = None
    sparse: tuple[tuple[int, ...], ...] = ()
    stored: tuple[Tensor, ...] = ()
    described: Cost | None = None


NO_EVIDENCE: Final = Evidence()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a call, or why there is none.

    Attributes:
        cost: the counts; None unless the status is `ok` or `assumed`.
        category: what kind of work it is.
        status: `ok`: FLOPs and bytes are exact; `assumed`: the counts rest on `note`, or the bytes
            are not known; `no_shapes`: there is a formula, but the recording lacks what it needs;
            `no_formula`: nothing is registered.
        note: the assumption or the reason, in words; of exact counts what their bounds mean.
    """

    cost: Cost | None
    category: str
    status: Status
    note: str = ""


Formula: TypeAlias = "Callable[[OpCall], Cost | None]"
EvidenceFormula: TypeAlias = "Callable[[OpCall, Evidence], Cost | None]"
_Plain = TypeVar("_Plain", bound="Formula")
_Informed = TypeVar("_Informed", bound="EvidenceFormula")
_Value = TypeVar("_Value")


class UnknownCostError(ValueError):
    """The call lacks something that its formula needs; the message says what."""


@dataclass(frozen=True, slots=True)
class _Registered:
    """A formula of call and evidence, its category, and the function that was registered."""

    formula: EvidenceFormula
    category: str
    source: Callable[..., Cost | None]


_NAMED: Final = tomllib.loads(files("pyprof2").joinpath("data/ops.toml").read_text("utf-8"))
"""The ops of which a name is all that is needed."""
_views: Final = frozenset(_NAMED["views"].split())
_composites: Final = frozenset(_NAMED["composites"].split())
_data_dependent: Final[dict[str, str]] = {
    name: entry["why"] for entry in _NAMED["no_formula"] for name in entry["ops"].split()
}
_categories: Final[dict[str, str]] = {
    name: category for category, ops in _NAMED["categories"].items() for name in ops.split()
}
_of_one_type: Final = frozenset(_NAMED["one_type"].split())
_patterns: Final = tuple(name for name in _categories if "*" in name)

_entries: dict[str, _Registered] = {}
_factors: dict[str, tuple[int, ...]] = {}
_sparse_by_name: dict[str, int] = {}


def cost_of(*ops: str, category: str) -> Callable[[_Plain], _Plain]:
    """Register the decorated function as the formula of `ops`.

    Args:
        ops: names of ops, such as `aten::mm`; a `*` at the end stands for any rest.
        category: one of `CATEGORIES`.

    Raises:
        CostRegistrationError: an op has a formula already, or the category is unknown.
    """
    _check_category(category)

    def register(formula: _Plain) -> _Plain:
        _register(ops, _Registered(lambda call, _evidence: formula(call), category, formula))
        return formula

    return register


def cost_with_evidence(*ops: str, category: str) -> Callable[[_Informed], _Informed]:
    """Register a formula that also takes what is known from elsewhere; see `cost_of`."""
    _check_category(category)

    def register(formula: _Informed) -> _Informed:
        _register(ops, _Registered(formula, category, formula))
        return formula

    return register


def _register(ops: tuple[str, ...], entry: _Registered) -> None:
    taken = sorted({op for op in ops if op in _entries or ops.count(op) > 1})
    if taken:
        msg = f"{', '.join(taken)}: a cost formula is registered already; give another name"
        raise CostRegistrationError(msg)
    _entries.update((op, entry) for op in ops)


def _check_category(category: str) -> None:
    if category not in CATEGORIES:
        msg = f"category {category}: there is none of that name; use one of {CATEGORIES}"
        raise CostRegistrationError(msg)


def mark_product(*ops: str, factors: tuple[int, ...], sparse: int | None = None) -> None:
    """Say that the FLOPs of ops are so many for each element of any of their factors.

    Args:
        ops: their names.
        factors: where among the inputs these are.
        sparse: where the input is that is sparse in every call.
    """
    _factors.update(dict.fromkeys(ops, factors))
    if sparse is not None:
        _sparse_by_name.update(dict.fromkeys(ops, sparse))


def is_product(op: str) -> bool:
    """Whether the FLOPs of the op are so many for each element of its factors."""
    return _plain_name(op) in _factors


def sparse_inputs(call: OpCall, evidence: Evidence = NO_EVIDENCE) -> dict[int, Tensor]:
    """Return the inputs that are sparse tensors, by place.

    Where strides are not recorded, those of which ops inside, or the op's name, say so.
    """
    tensors = {at: item for at, item in enumerate(call.inputs) if isinstance(item, Tensor)}
    named = _sparse_by_name.get(_plain_name(call.op))
    said = {at for at, item in tensors.items() if item.shape in evidence.sparse or at == named}
    return {
        at: item
        for at, item in tensors.items()
        if item.is_sparse or (item.strides is None and at in said)
    }


def is_view(op: str) -> bool:
    """Whether the op only looks at tensors another way, or at their metadata."""
    return _plain_name(op) in _views


def is_composite(op: str) -> bool:
    """Whether the op calls other ops, which do the work.

    It may have a formula all the same; that holds where no op inside has one.
    """
    return _plain_name(op) in _composites


_ONE_TYPE: Final = frozenset({"conv", "norm", "softmax"})
_SEVERAL_TYPES: Final = frozenset({"aten::cudnn_batch_norm_backward"})
"""One of its inputs is a buffer of bytes from the forward pass."""


def lacks_types(call: OpCall) -> bool:
    """Whether no tensor has an element type, and all have the same in ops of this name."""
    found = [item for item in call.inputs if isinstance(item, Tensor)]
    if not found or any(item.dtype for item in found):
        return False
    name = _plain_name(call.op)
    is_one = name.startswith("aten::") and category_of(name) in _ONE_TYPE
    is_one = is_one and name not in _SEVERAL_TYPES
    return is_one or name in _of_one_type


def has_formula(op: str) -> bool:
    """Whether a formula is registered for the op, or it is a view."""
    return is_view(op) or _find(op) is not None


def formula_of(op: str) -> Callable[..., Cost | None] | None:
    """Return the function that was registered for the op; None if there is none."""
    entry = _find(op)
    return None if entry is None else entry.source


def registered_ops() -> tuple[str, ...]:
    """Return the names that have a formula, sorted."""
    return tuple(sorted(_entries))


def category_of(op: str) -> str | None:
    """Return the category of an op; None if nothing is known of it."""
    entry = _find(op)
    return _listed_category(_plain_name(op)) if entry is None else entry.category


@lru_cache(maxsize=1 << 10)
def _listed_category(name: str) -> str | None:
    """Return the category of a name without a formula, or of the first pattern that it fits."""
    if name in _categories:
        return _categories[name]
    found = (_categories[pattern] for pattern in _patterns if fnmatchcase(name, pattern))
    return next(found, None)


def _plain_name(op: str) -> str:
    """`aten::add.Tensor` -> `aten::add`; a dot before the `::` belongs to the name."""
    space, colons, name = op.rpartition("::")
    return f"{space}{colons}{name.split('.')[0]}" if colons else op


_STEM_MAX: Final = 200
"""No registered name is longer, but a name in a recording may be: of any length."""


def _find(op: str) -> _Registered | None:
    name = _plain_name(op)
    if name in _entries:
        return _entries[name]
    if op in _entries:
        return _entries[op]
    return _find_stem(_entries, name)


def _find_stem(known: Mapping[str, _Value], name: str) -> _Value | None:
    """Return what is known of the name, or of the longest stem of it, such as `aten::m*`."""
    stems = (name[:end] + "*" for end in range(min(len(name), _STEM_MAX), 0, -1))
    return known.get(name) or next((known[stem] for stem in stems if stem in known), None)


_UNSTATED: Final = "between bounds: the formula does not say what it takes for granted"
_NAMED_TYPE: Final = "all tensors taken as {}, as its kernels are named: no element types recorded"
_NO_TYPES: Final = "bytes unknown: no element types recorded"


def estimate(call: OpCall, evidence: Evidence = NO_EVIDENCE) -> Estimate:
    """Return the cost of a call, or why there is none; never raises on odd inputs.

    Args:
        call: the op and its inputs.
        evidence: what is known of the call from elsewhere.
    """
    category = category_of(call.op) or "other"
    if is_view(call.op):
        return Estimate(Cost(0, 0, 0), category, "ok")
    entry = _find(call.op)
    name = _plain_name(call.op)
    if entry is None:
        return Estimate(None, category, "no_formula", _find_stem(_data_dependent, name) or "")
    call, words = _with_evidence(OpCall(name, call.inputs), evidence)
    try:
        cost = evidence.described or entry.formula(call, evidence)
        cost = cost and _of_sparse(cost, call, evidence)
        problem = _problem(cost)
    except UnknownCostError as error:
        cost, problem = None, str(error)
    except TerminatedError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- one of a user's own may raise anything
        cost, problem = None, _failure(entry, error)
    if cost is None or problem:
        return Estimate(None, category, "no_shapes", problem)
    # Counts that may be others are never exact without a word.
    assumed = cost.assumed or (_UNSTATED if cost.is_open and not cost.note else "")
    words = words or (_NO_TYPES if cost.bytes is None and not assumed else "")
    assumed = "; ".join(filter(None, (assumed or (words and cost.note), words)))
    if assumed:
        return Estimate(cost, category, "assumed", assumed)
    return Estimate(cost, category, "ok", cost.note)


_SPARSE: Final = "{} sparse, and how much of it is stored is not recorded: counted as dense"
_INDEX_BYTES: Final = 8


def _of_sparse(cost: Cost, call: OpCall, evidence: Evidence) -> Cost:
    """Return the cost where inputs are sparse: only what is stored is read, and multiplied.

    Where that is not recorded, as dense, with bounds: nothing, and all with an index for each
    dimension.
    """
    found = sparse_inputs(call, evidence)
    if not found or "mkldnn" in call.op or cost.bytes is None:
        return cost
    (at, item), *others = found.items()
    whole, stored = prod(item.shape), evidence.stored
    if stored and whole and not others and at in _factors.get(call.op, ()) and not cost.is_open:
        sizes = [nbytes(prod(part.shape), part.dtype) or 0 for part in stored]
        count = prod(stored[-1].shape)
        read = (cost.bytes_read or 0) - (nbytes(whole, item.dtype) or 0) + sum(sizes)
        flops = cost.flops // whole * count
        params = f"{cost.params},nnz={count}"
        formula, numbers = f"{cost.flops_formula}·nnz/all", f"{cost.flops_numbers}·{count}/{whole}"
        return replace(
            cost, flops=flops, bytes_read=max(0, read), params=params,
            flops_formula=formula if cost.flops_formula else "",
            flops_numbers=numbers if cost.flops_formula else "",
        )  # fmt: skip
    places = ", ".join(str(place) for place in found)
    words = _SPARSE.format(f"input {places} is" if not others else f"inputs {places} are")
    index = sum(_INDEX_BYTES * len(each.shape) * prod(each.shape) for each in found.values())
    most = (cost.bytes if cost.bytes_hi is None else cost.bytes_hi) + index
    return replace(
        cost, assumed="; ".join(filter(None, (cost.assumed, words))), note="",
        flops_lo=0, flops_hi=max(cost.flops, cost.flops_hi or 0), bytes_lo=0, bytes_hi=most,
    )  # fmt: skip


def _failure(entry: _Registered, error: BaseException) -> str:
    """Say what a formula failed of; one of ours did on inputs that make no sense."""
    if entry.source.__module__.startswith("pyprof2."):
        return "the inputs were not understood"
    name = f"{entry.source.__module__}.{entry.source.__qualname__}"
    return f"{FORMULA_FAILED} {name}: {type(error).__name__}: {error}"


def with_elements(inputs: Sequence[Input], elements: Sequence[str]) -> tuple[Input, ...]:
    """Return the inputs; tensors in lists that lack their element type have that of `elements`."""
    if not elements:
        return tuple(inputs)
    found: list[Input] = []
    lists = 0
    for item in inputs:
        if isinstance(item, tuple):
            dtype = elements[min(lists, len(elements) - 1)]
            lists += 1
            found.append(tuple(t if t.dtype else replace(t, dtype=dtype) for t in item))
        else:
            found.append(item)
    return tuple(found)


def _with_evidence(call: OpCall, evidence: Evidence) -> tuple[OpCall, str]:
    """Return the call, its inputs as the evidence completes them, and in words what is assumed."""
    inputs, words = with_elements(call.inputs, evidence.elements), ""
    if evidence.element is not None and lacks_types(call):
        words = _NAMED_TYPE.format(evidence.element)
        inputs = tuple(
            replace(item, dtype=evidence.element) if isinstance(item, Tensor) else item
            for item in inputs
        )
    return OpCall(call.op, _repeated(inputs, evidence.repeated)), words


def _repeated(inputs: tuple[Input, ...], source: Tensor | None) -> tuple[Input, ...]:
    """Return the inputs, the first with stride 0 along the dimensions that `source` lacks."""
    first = inputs[0] if inputs else None
    if source is None or not isinstance(first, Tensor) or first.strides is not None:
        return inputs
    left = [dim for dim in source.shape if dim != 1]
    strides, stride = [0] * len(first.shape), 1
    for at in reversed(range(len(first.shape))):
        if left and first.shape[at] == left[-1]:
            strides[at] = stride
            stride *= left.pop()
    return inputs if left else (replace(first, strides=tuple(strides)), *inputs[1:])


def _problem(cost: Cost | None) -> str:
    """Say why a formula's result is none; empty if it is one."""
    if cost is None:
        return "the recording lacks shapes or scalar arguments"
    counts = [getattr(cost, f.name) for f in fields(cost) if f.name not in _TEXTS]
    texts = [getattr(cost, name) for name in _TEXTS if name != "dtype"]
    texts += [] if cost.dtype is None else [cost.dtype]
    is_broken = any(type(count) is not int for count in counts if count is not None)
    if is_broken or any(type(text) is not str for text in texts):
        return "the inputs were not understood"
    if any(not 0 <= count < _INT64_END for count in (*counts, cost.bytes) if count is not None):
        return "the counts do not fit into 64 bits"
    bounds = (
        (cost.flops_lo, cost.flops, cost.flops_hi), (cost.bytes_lo, cost.bytes, cost.bytes_hi),
    )  # fmt: skip
    known = ([number for number in each if number is not None] for each in bounds)
    if any(each != sorted(each) for each in known):
        return "the counts are not within their bounds"
    if not cost.flops and cost.bytes is None:
        return "no element types recorded"
    return ""


_TEXTS: Final = frozenset({"dtype", "params", "assumed", "note", "flops_formula", "flops_numbers"})


class FormulaText(NamedTuple):
    """The name of a formula, and what it says of itself and of the formulas it builds on."""

    name: str
    text: str


def formula_text(op: str) -> FormulaText | None:
    """Return what the formula of an op says; None if it has none."""
    formula = formula_of(op)
    if formula is None:
        return None
    text, module = inspect.getdoc(formula) or "", inspect.getmodule(formula)
    texts = [text]
    for name in re.findall(r"`(\w+)`", text):
        other = getattr(module, name, None)
        if inspect.isfunction(other) and other is not formula:
            summary = (inspect.getdoc(other) or "").partition("\n\nArgs:")[0]
            texts.append(f"{name}: {summary}")
    if "see the module" in text:
        texts.append(inspect.getdoc(module) or "")
    family = formula.__module__.rpartition(".")[2]
    return FormulaText(f"{family}.{formula.__name__}", "\n\n".join(filter(None, texts)))
