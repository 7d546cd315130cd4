"""Numbers that know how they were made, so that a count comes with its formula.

A formula computes with named sizes. The text is made by the computation itself, so it cannot say
anything else::

    m, n, k = Size(4, "M"), Size(16, "N"), Size(8, "K")
    flops = 2 * m * n * k  # 1024, flops.formula 2·M·N·K, flops.numbers 2·4·16·8
"""

from __future__ import annotations

from typing import Final, Self

_SUM, _QUOTIENT, _PRODUCT, _NAME = range(4)
"""How firmly a text holds together: what is looser than its place allows gets parentheses."""

_PLACES: Final = {
    " + ": (_SUM, _SUM, _SUM),
    " - ": (_SUM, _SUM, _QUOTIENT),
    "·": (_PRODUCT, _PRODUCT, _PRODUCT),
    "/": (_QUOTIENT, _QUOTIENT, _NAME),
}
"""By sign: how firm the result is, and how firm the left and the right side have to be."""


class Size(int):
    """A whole number with its formula; sums, differences, products and quotients keep it.

    Attributes:
        formula: how it was made, with the names of the sizes.
        numbers: the same with their values.
        firmness: how firmly these texts hold together.
    """

    formula: str
    numbers: str
    firmness: int

    def __new__(
        cls, value: int, formula: str, numbers: str | None = None, firmness: int = _NAME
    ) -> Self:
        """Return `value` under a name, or as the result of a formula."""
        size = super().__new__(cls, value)
        size.formula = formula
        size.numbers = str(int(value)) if numbers is None else numbers
        size.firmness = firmness
        return size

    def __mul__(self, other: int) -> Size:
        return self if _is_plain(other, 1) else _joined(int(self) * other, self, "·", other)

    def __rmul__(self, other: int) -> Size:
        return self if _is_plain(other, 1) else _joined(int(self) * other, other, "·", self)

    def __add__(self, other: int) -> Size:
        return self if _is_plain(other, 0) else _joined(int(self) + other, self, " + ", other)

    def __radd__(self, other: int) -> Size:
        return self if _is_plain(other, 0) else _joined(int(self) + other, other, " + ", self)

    def __sub__(self, other: int) -> Size:
        return self if _is_plain(other, 0) else _joined(int(self) - other, self, " - ", other)

    def __floordiv__(self, other: int) -> Size:
        return self if _is_plain(other, 1) else _joined(int(self) // other, self, "/", other)


def plain(count: int) -> int:
    """Return the number alone, as tables and files take it."""
    return int(count) if isinstance(count, Size) else count


def _is_plain(value: int, number: int) -> bool:
    return not isinstance(value, Size) and value == number


def _joined(value: int, left: int, sign: str, right: int) -> Size:
    result, *least = _PLACES[sign]
    formula, numbers = (
        sign.join(_part(side, at, kind) for side, at in zip((left, right), least, strict=True))
        for kind in ("formula", "numbers")
    )
    return Size(value, formula, numbers, result)


def _part(side: int, least: int, kind: str) -> str:
    if not isinstance(side, Size):
        return str(side)
    text: str = getattr(side, kind)
    return text if side.firmness >= least else f"({text})"
