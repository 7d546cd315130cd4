"""A formula as people read it: what it says of itself and of the formulas it builds on."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, NamedTuple

from pyprof2.analysis.costs import formula_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FormulaText(NamedTuple):
    """The name of a formula, and what it says of itself and of the formulas it builds on."""

    name: str
    text: str


def formula_text(op: str) -> FormulaText | None:
    """Return what the formula of an op says; None if it has none."""
    formula = formula_of(op)
    if formula is None:
        return None
    texts = [inspect.getdoc(formula) or "", *_texts_of_others(formula)]
    module = formula.__module__.rpartition(".")[2]
    return FormulaText(f"{module}.{formula.__name__}", "\n\n".join(filter(None, texts)))


def _texts_of_others(formula: Callable[..., object]) -> Iterator[str]:
    """Give what the functions and the module say that the docstring refers to."""
    text, module = inspect.getdoc(formula) or "", inspect.getmodule(formula)
    for name in re.findall(r"`(\w+)`", text):
        other = getattr(module, name, None)
        if inspect.isfunction(other) and other is not formula:
            summary = (inspect.getdoc(other) or "").partition("\n\nArgs:")[0]
            yield f"{name}: {summary}"
    if "see the module" in text:
        yield inspect.getdoc(module) or ""
