"""A formula as people read it: what it says of itself, and its FLOPs with the numbers put in."""

from __future__ import annotations

import ast
import inspect
import math
import operator
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.costs import formula_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_FORMS: Final = {
    "matmul": ("2·M·N·K", "2·B·M·N·K", "2·M·N·K/2", "8·M·N·K", "8·B·M·N·K", "M·N"),
    "conv": (
        "2·N·K·out·C/groups·window",
        "2·N·C·in·K/groups·window",
        "2·2·N·K·out·C/groups·window",
        "2·2·N·C·in·K/groups·window",
    ),
    "attention": (
        "2·B·H·Sq·Sk·(D + Dv)",
        "2·B·H·Sq·(Sq + 1)/2·(D + Dv)",
        "2·B·H·Sq·Sk·(3·D + 2·Dv)",
        "2·B·H·Sq·(Sq + 1)/2·(3·D + 2·Dv)",
    ),
    "reduce": ("N - out",),
}
"""By category the FLOPs in terms of the op's parameters; the one that gives its count is its."""

_ELEMENTS: Final = ("N·C·HW", "rows·width", "window·out", "grad", "N", "N·C")
"""What other formulas count their operations for, the most particular one first."""

_MOST_PER_ELEMENT: Final = 1000


class FormulaText(NamedTuple):
    """The name of a formula, and what it says of itself and of the formulas it builds on."""

    name: str
    text: str


def formula_text(op: str) -> FormulaText | None:
    """Return what the formula of an op says; None if it has none."""
    formula = formula_of(op)
    if formula is None:
        return None
    texts = [inspect.getdoc(formula) or "", *_told_by_others(formula)]
    module = formula.__module__.rpartition(".")[2]
    return FormulaText(f"{module}.{formula.__name__}", "\n\n".join(filter(None, texts)))


def _told_by_others(formula: Callable[..., object]) -> Iterator[str]:
    """Give what the functions and the module say that the docstring refers to."""
    text, module = inspect.getdoc(formula) or "", inspect.getmodule(formula)
    for name in re.findall(r"`(\w+)`", text):
        other = getattr(module, name, None)
        if inspect.isfunction(other) and other is not formula:
            summary = (inspect.getdoc(other) or "").partition("\n\nArgs:")[0]
            yield f"{name}: {summary}"
    if "see the module" in text:
        yield inspect.getdoc(module) or ""


def sizes_in(params: str) -> dict[str, int]:
    """Return the numbers in `M=512,out=7x7`; sizes with an `x` are multiplied."""
    sizes = {}
    for part in params.split(","):
        name, _, value = part.partition("=")
        if re.fullmatch(r"\d{1,18}(?:x\d{1,18})*", value):
            sizes[name] = math.prod(map(int, value.split("x")))
    return sizes


def flops_with_numbers(category: str, params: str, flops: int) -> str | None:
    """Return the FLOPs as `2·M·N·K = 2·4·16·8`; None where no known form gives this count.

    Args:
        category: of the op.
        params: its parameters, such as `M=4,N=16,K=8`.
        flops: its count, which the form must give.
    """
    sizes = {"B": 1} | sizes_in(params)
    sizes.setdefault("Dv", sizes.get("D", 0))
    for form in (*_FORMS.get(category, ()), *_per_element(sizes, flops)):
        if _value(form, sizes) == flops:
            return f"{form} = {_filled(form, sizes)}"
    return None


def _per_element(sizes: Mapping[str, int], flops: int) -> Iterator[str]:
    for form in _ELEMENTS:
        count = _value(form, sizes)
        if count and not flops % count and 0 < flops // int(count) <= _MOST_PER_ELEMENT:
            each = flops // int(count)
            yield form if each == 1 else f"{each}·{form}"


def _filled(form: str, sizes: Mapping[str, int]) -> str:
    return re.sub(r"[A-Za-z]\w*", lambda name: str(sizes[name[0]]), form)


def _value(form: str, sizes: Mapping[str, int]) -> Fraction | None:
    """Return the value of a form; None if a size in it is not known."""
    # `in` is a word of Python's.
    tree = ast.parse(re.sub(r"\bin\b", "in_", form.replace("·", "*")), mode="eval").body
    return _evaluated(tree, sizes)


def _evaluated(tree: Any, sizes: Mapping[str, int]) -> Fraction | None:
    if isinstance(tree, ast.Constant):
        return Fraction(str(tree.value))
    if isinstance(tree, ast.Name):
        size = sizes.get(tree.id.rstrip("_"))
        return None if size is None else Fraction(size)
    left, right = _evaluated(tree.left, sizes), _evaluated(tree.right, sizes)
    if left is None or right is None:
        return None
    if isinstance(tree.op, ast.Div):
        return left / right if right else None
    return _OPERATIONS[type(tree.op)](left, right)


_OPERATIONS: Final[dict[type, Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
