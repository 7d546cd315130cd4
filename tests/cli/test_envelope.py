"""`--envelope`: JSON with what it rests on, in the one form that agents get too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

DEMO: Final = Path(__file__).parents[2] / "pyprof2" / "data" / "demo.json.gz"
COMMANDS: Final = {
    "prof": ["prof", "FILE", "--by", "op"],
    "summary": ["prof", "FILE", "--summary"],
    "kernels": ["prof", "FILE", "--by", "kernel", "--top", "3"],
    "idle": ["idle", "FILE", "--by", "cause"],
    "advise": ["advise", "FILE"],
    "explain": ["explain", "FILE", "op:5"],
    "compare": ["compare", "FILE", "FILE"],
    "check": ["check", "FILE"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import pyprof2

    return pyprof2.parse(DEMO, tmp_path_factory.mktemp("store") / "demo.pyprof2")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_envelope_has_data_evidence_and_what_follows(
    name: str, store: Path, invoke: Callable[..., Any]
) -> None:
    words = [str(store) if word == "FILE" else word for word in COMMANDS[name]]

    result = invoke(*words, "--envelope")

    assert result.code == 0
    found = json.loads(result.out)
    assert list(found) == ["schema", "data", "evidence", "next"]
    assert found["schema"] == 1
    assert found["evidence"]["recording"] == ["demo.json.gz"]
    assert any("no GPU activity" in each for each in found["evidence"]["not_recorded"])
    assert all({"call", "arguments"} == set(each) for each in found["next"])
    assert ":null" not in result.out


def test_an_envelope_holds_what_json_does(store: Path, invoke: Callable[..., Any]) -> None:
    words = ["prof", str(store), "--by", "layer,op"]
    plain = json.loads(invoke(*words, "--format", "json").out)

    found = json.loads(invoke(*words, "--envelope").out)["data"]

    assert len(found) == len(plain)
    for mine, theirs in zip(found, plain, strict=True):
        words_of = {k for k, v in mine.items() if v in ("not recorded", "not known")}
        assert words_of == {k for k, v in theirs.items() if v is None}
        assert {k: v for k, v in mine.items() if k not in words_of} == pytest.approx(
            {k: v for k, v in theirs.items() if v is not None}
        )


@pytest.mark.parametrize("name", ["prof", "explain", "check"])
def test_an_envelope_is_json_alone(name: str, store: Path, invoke: Callable[..., Any]) -> None:
    words = [str(store) if word == "FILE" else word for word in COMMANDS[name]]
    form = "text" if name == "explain" else "csv"

    result = invoke(*words, "--envelope", "--format", form)

    assert result.code == 2
    assert "--envelope is for json" in result.err
