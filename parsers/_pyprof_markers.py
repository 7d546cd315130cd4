"""Texts that PyProf wrote into NVTX ranges: the stack of a call, and its arguments.

A text is the `repr` of a Python dict of literals; it is translated to JSON, never evaluated::

    {'traceMarker': ['train.py:41', '…/torch/nn/modules/linear.py:103'], …}      outermost first
    {'mod': 'torch.nn.functional', 'op': 'linear', 'args': [
        {'name': '', 'type': 'tensor', 'shape': (1, 400), 'dtype': 'float32'},
        {'name': 'bias', 'type': 'NoneType', 'value': None}]}

DLProf's variant of it leaves out all arguments but tensors, and adds keys that say nothing more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pyprof2.frames import user_line
from pyprof2.problems import PROBLEMS, PYPROF_BROKEN, PYPROF_TOO_LONG
from pyprof2.signatures import TORCH_DTYPES, Scalar, Tensor, is_possible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.signatures import Input

TEXT_MAX: Final = 1 << 16
"""Longer texts are damage, or an attack."""

_TOKEN: Final = re.compile(
    r"""\s*+(?:
        (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:0|[1-9]\d{0,17})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)(?![\w.])
      | (?P<word>None|True|False)\b
      | (?P<end>,?\s*+[)\]}]) | (?P<sign>[(\[{,:])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)", re.DOTALL)
_SIMPLE_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_WORDS: Final = {"None": "null", "True": "true", "False": "false"}
_BRACKETS: Final = {"(": "[", ")": "]"}

_LINE: Final = re.compile(r"\d{1,9}")
_RECORDER: Final = re.compile(r"(?:^|[\\/])pyprof[\\/]nvtx[\\/]")

_OPERATORS: Final = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_",
    "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul_", "__truediv__": "div",
    "__itruediv__": "div_", "__matmul__": "matmul", "__neg__": "neg", "__pow__": "pow",
}  # fmt: skip
"""The methods behind Python's operators whose arguments are those of an op, in its order."""

_CONV: Final = "input weight bias stride padding dilation groups"
_CONV_TRANSPOSED: Final = "input weight bias stride padding output_padding groups dilation"
_MAX_POOL: Final = "input kernel_size stride padding dilation ceil_mode"
_AVG_POOL: Final = "input kernel_size stride padding ceil_mode count_include_pad"
ARGUMENTS: Final = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _CONV),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _CONV_TRANSPOSED
    ),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _MAX_POOL),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _AVG_POOL),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), "input output_size"
    ),
    **dict.fromkeys(
        (
            "relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "exp", "exp_", "log", "log_",
            "sqrt", "sqrt_", "rsqrt", "abs", "neg", "sin", "cos", "erf", "zero_", "clone", "gelu",
            "silu", "selu", "bernoulli",
        ),
        "input",
    ),
    **dict.fromkeys(
        ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "matmul"), "input other"
    ),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), "input other"),
    **dict.fromkeys(("softmax", "log_softmax"), "input dim"),
    "linear": "input weight bias", "mm": "input mat2", "bmm": "input mat2", "mv": "input vec",
    "addmm": "input mat1 mat2", "baddbmm": "input batch1 batch2", "pow": "input exponent",
    "layer_norm": "input normalized_shape weight bias eps",
    "group_norm": "input num_groups weight bias eps", "dropout": "input p training",
    "flatten": "input start_dim end_dim", "copy_": "input src", "fill_": "input value",
    "uniform_": "input from to", "normal_": "input mean std", "mse_loss": "input target",
    "nll_loss": "input target weight",
}  # fmt: skip
"""Functions and methods that are ops of the same name, `aten::…`, with these first arguments, in
this order."""

_LISTS: Final = {"cat", "stack"}
"""Ops of a list of tensors, which PyProf writes one by one."""

_SCALARS: Final = {
    "stride", "padding", "dilation", "groups", "output_padding", "kernel_size", "ceil_mode",
    "count_include_pad", "output_size", "dim", "normalized_shape", "eps", "num_groups", "p",
    "training", "start_dim", "end_dim", "from", "to", "mean", "std",
}  # fmt: skip
"""The arguments that no tensor can be."""


class _PyprofArgument(msgspec.Struct):
    type: str
    name: str = ""
    shape: list[int] | None = None
    dtype: str | None = None
    value: Any = None


class _PyprofCall(msgspec.Struct):
    mod: str
    op: str
    args: list[_PyprofArgument]


class _PyprofStack(msgspec.Struct):
    traceMarker: list[str]  # noqa: N815 (PyProf's key)


_CALL: Final = msgspec.json.Decoder(_PyprofCall)
_STACK: Final = msgspec.json.Decoder(_PyprofStack)


class MarkerError(ValueError):
    """A text begins like a marker of PyProf's and is none.

    Attributes:
        problem: the slug of what is wrong with it.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(PROBLEMS[problem].text)
        self.problem = problem


def parse_stack(text: str) -> str | None:
    """Return the lines of the stack outside of torch, innermost first; None: there is none.

    Raises:
        MarkerError: the text is damaged.
    """
    stack: _PyprofStack = _decode(_STACK, text)
    places = (frame.rpartition(":") for frame in reversed(stack.traceMarker))
    found = (
        user_line(path, int(line))
        for path, _, line in places
        if _LINE.fullmatch(line) and not _RECORDER.search(path)
    )
    return "\n".join(line for line in found if line) or None


def parse_call(text: str) -> tuple[str, tuple[Input, ...]]:
    """Return what was called, as an op's name, and its inputs in the order of the op's schema.

    A function that is not known to be an op is `module::function`, with its arguments as given.

    Raises:
        MarkerError: the text is damaged.
    """
    call: _PyprofCall = _decode(_CALL, text)
    name = _OPERATORS.get(call.op, call.op)
    inputs = [(argument, _input(argument)) for argument in call.args]
    if call.mod in ("torch", "Tensor", "torch.nn.functional"):
        if name in _LISTS:
            return f"aten::{name}", _listed(value for _, value in inputs)
        if name in ARGUMENTS:
            return f"aten::{name}", _placed(inputs, ARGUMENTS[name].split())
    return f"{call.mod}::{call.op}", tuple(value for _, value in inputs)


def _listed(inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return the tensors as one list, and what comes after them."""
    inputs = list(inputs)
    tensors = tuple(item for item in inputs if isinstance(item, Tensor))
    return (tensors, *(item for item in inputs if not isinstance(item, Tensor)))


def _placed(
    inputs: Sequence[tuple[_PyprofArgument, Input]], parameters: Sequence[str]
) -> tuple[Input, ...]:
    """Return the inputs by parameter; those that were not given or not written are None."""
    found: dict[str, Input] = {}
    free = iter(parameters)
    for argument, value in inputs:
        if argument.name in parameters:
            found[argument.name] = value
            continue
        # Where numbers were left out, a tensor stands at the place of one.
        is_tensor = isinstance(value, Tensor)
        place = next((name for name in free if not (is_tensor and name in _SCALARS)), None)
        if place is not None:
            found[place] = value
    return tuple(found.get(name) for name in parameters)


def _input(argument: _PyprofArgument) -> Input:
    if argument.shape is not None:
        if argument.type != "tensor":
            return None
        if not is_possible(argument.shape):
            raise MarkerError(PYPROF_BROKEN)
        dtype = TORCH_DTYPES.get((argument.dtype or "").removeprefix("torch."))
        return Tensor(tuple(argument.shape), dtype)
    return None if argument.value is None else Scalar(argument.value)


def _decode(decoder: msgspec.json.Decoder[Any], text: str) -> Any:
    if len(text) > TEXT_MAX:
        raise MarkerError(PYPROF_TOO_LONG)
    try:
        return decoder.decode(_as_json(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MarkerError(PYPROF_BROKEN) from error


def _as_json(text: str) -> str:
    """Return Python literals as JSON, in which tuples are lists; what is neither stays wrong."""
    out, at = [], 0
    while token := _TOKEN.match(text, at):
        at = token.end()
        kind, word = token.lastgroup, token[token.lastgroup or 0]
        if kind == "text":
            word = msgspec.json.encode(_ESCAPE.sub(_unescaped, word[1:-1])).decode()
        elif kind == "end":
            word = word[-1]
        out.append(_WORDS.get(word, _BRACKETS.get(word, word)))
    return "".join(out) + text[at:].strip()


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _SIMPLE_ESCAPES.get(code, code)
