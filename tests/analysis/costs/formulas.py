"""The value of a formula's text, found without the code that wrote it."""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPERATIONS: Final[dict[type, Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}  # fmt: skip


def sizes_in(params: str) -> dict[str, int]:
    """Return the numbers in `M=512,out=7x7`; sizes with an `x` are multiplied."""
    parts = (part.partition("=") for part in params.split(","))
    return {
        name: math.prod(map(int, value.split("x")))
        for name, _, value in parts
        if re.fullmatch(r"\d+(?:x\d+)*", value)
    }


def value_of(text: str, sizes: Mapping[str, int] | None = None) -> int | None:
    """Return the value of `2·M·N`; None where a size in it is not among `sizes`."""
    # `in` is a word of Python's.
    plain = re.sub(r"\bin\b", "in_", text.replace("·", "*"))
    return _value(ast.parse(plain, mode="eval").body, sizes or {})


def _value(tree: Any, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, ast.Constant):
        return tree.value if isinstance(tree.value, int) else None
    if isinstance(tree, ast.Name):
        return sizes.get(tree.id.rstrip("_"))
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = _value(tree.left, sizes), _value(tree.right, sizes)
    if left is None or right is None:
        return None
    return int(_OPERATIONS[type(tree.op)](left, right))
