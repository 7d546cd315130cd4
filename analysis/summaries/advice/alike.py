"""Findings that several ranks have: shown once, with the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

_SAME: Final = ("status", "rule", "source", "needs")


def alike(findings: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the findings, those of several ranks that are alike as one.

    They are alike if they are of one rule and line, and need the same to be recorded. Of these the
    one with the largest stake stands for all: times of ranks are never added up.

    Args:
        findings: of `advise`, in its order.

    Returns:
        Its rows as objects, null as None, with `ranks`, who has it, `rank` among them; and
        `least_ns`, the smallest of their largest stakes. In the order of `advise` in each status.
    """
    statuses = list(dict.fromkeys(findings["status"]))
    found = sorted(_groups(findings), key=lambda row: -(row["at_stake_hi_ns"] or 0))
    return sorted(found, key=lambda row: statuses.index(row["status"]))


def _groups(findings: pd.DataFrame) -> Iterator[dict[str, Any]]:
    plain = findings.astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    groups: dict[tuple[Any, ...], list[dict[Any, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _SAME), []).append(row)
    for own in groups.values():
        stakes = [row["at_stake_hi_ns"] or 0 for row in own]
        most = own[stakes.index(max(stakes))]
        ranks = sorted({row["rank"] for row in own})
        yield {str(name): value for name, value in most.items()} | {
            "ranks": ranks, "least_ns": min(stakes) if most["at_stake_hi_ns"] else None
        }  # fmt: skip
