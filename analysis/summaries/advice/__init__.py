"""Advice: findings with the time at stake, each by a rule of its own."""

from __future__ import annotations

from pyprof2.analysis.summaries.advice.advise import (
    advice_of_facts,
    alike,
    find_pollution,
    noting_pollution,
)
from pyprof2.analysis.summaries.advice.findings import Rule
from pyprof2.analysis.summaries.advice.rules import RULES

__all__ = [
    "RULES", "Rule", "advice_of_facts", "alike", "find_pollution",
    "noting_pollution",
]  # fmt: skip
