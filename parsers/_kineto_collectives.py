"""What Kineto says of a collective, in pyprof2's words."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pyprof2.parsers._json import DECODE_ERRORS
from pyprof2.parsers._kineto_columns import COLLECTIVE
from pyprof2.parsers._kineto_values import first_of, to_int

_DTYPES: Final = {
    "Float": "f32", "Double": "f64", "Half": "f16", "BFloat16": "bf16", "Long": "i64", "Int": "i32",
    "Short": "i16", "Char": "i8", "Byte": "u8", "Bool": "bool", "Float8_e4m3fn": "f8e4m3",
    "Float8_e5m2": "f8e5m2",
}  # fmt: skip
_SENDS: Final = ("send", "recv")
_ROOTED: Final = ("broadcast", "reduce", "gather", "scatter")
_FLAGS: Final[dict[Any, bool]] = {b"true": True, b"false": False}
_RANKS_MAX: Final = 1 << 20
"""No job has more processes."""


def collective_of(recorded: tuple[Any, ...]) -> dict[str, Any]:
    """Return what is known of a collective, as it stands among the inputs of its op.

    `collective`, `in_count`, `out_count`, `dtype` and `group_size` are always there, null where
    they were not recorded; the others only where they are known.

    Args:
        recorded: what `COLLECTIVE` names; a shorter one lacks the rest.
    """
    values = dict(zip(COLLECTIVE, recorded, strict=False))
    name, dtype = values["collective"], values.get("comm_dtype")
    found = {
        "collective": name,
        "in_count": _count(values.get("in_count")),
        "out_count": _count(values.get("out_count")),
        "dtype": _DTYPES.get(dtype) if isinstance(dtype, str) else None,
        "group_size": _count(values.get("group_size")),
    }
    ranks = _ranks(values, found["group_size"])
    more = {
        "group_name": _text(first_of(values.get("group_name"), values.get("group_id"))),
        "group_desc": values.get("group_desc"),
        "group_ranks": ranks,
        "in_split": _numbers(values.get("in_split")),
        "out_split": _numbers(values.get("out_split")),
        "asynchronous": _FLAGS.get(values.get("is_async")),
        **_other(str(name), values, ranks),
    }
    return found | {key: value for key, value in more.items() if value is not None}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _numbers(text: Any) -> list[int] | None:
    """Return the list in a text as `[0, 1, 2]`; None if it is cut, or no list of counts."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=list[int])
    except (msgspec.ValidationError, *DECODE_ERRORS):
        return None


def _ranks(values: dict[str, Any], size: int | None) -> list[int] | None:
    """Return the ranks of the group, in its own order: listed, else counted with a stride.

    PyTorch cuts the list after 30, and writes the first rank and the stride, where there is one.
    """
    listed = _numbers(values.get("group_ranks"))
    if listed is not None and len(listed) == (size or len(listed)):
        return listed or None
    first, stride = to_int(values.get("first_rank")), to_int(values.get("rank_stride"))
    if size is None or first is None or stride is None:
        return None
    if not (0 < size <= _RANKS_MAX and 0 <= first < _RANKS_MAX and 0 < stride < _RANKS_MAX):
        return None
    return list(range(first, first + size * stride, stride))


def _other(name: str, values: dict[str, Any], ranks: list[int] | None) -> dict[str, int]:
    """Return the rank that a collective starts from or ends at: its root, or the peer.

    PyTorch writes it as a number in the group.
    """
    plain = name.replace("_", "").lower()
    if plain.startswith(_SENDS):
        own = "target_rank" if plain.startswith("send") else "source_rank"
        key, number = "peer", to_int(first_of(values.get(own), values.get("other_rank")))
    elif plain.startswith(_ROOTED) and not plain.startswith("reducescatter"):
        key, number = "root", to_int(values.get("other_rank"))
    else:
        return {}
    if number is None or number < 0:
        return {}
    if ranks is None:
        return {}
    return {key: ranks[number]} if number < len(ranks) else {}
