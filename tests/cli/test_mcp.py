"""`pyprof2 mcp` without what it needs says so in a line."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("missing", ["mcp", "duckdb"])
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    missing: str, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )

    result = invoke("mcp", tmp_path)

    assert result.code == 2
    assert "pip install mcp duckdb" in result.err
    assert len(result.err.splitlines()) == 1


def test_the_skill_needs_no_package(
    invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    result = invoke("mcp", "--skill")

    assert result.code == 0
    assert result.out.startswith("---\nname: pyprof2\n")
