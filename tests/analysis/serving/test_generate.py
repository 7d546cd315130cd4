"""Steps of Hugging Face's `generate`, in recordings of it and in others made up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.api import run_serving
from pyprof2.api.run import load
from pyprof2.cli import main
from tests.conftest import ROOT
from tests.kineto_events import Event, frame, launched, load_events, op

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

DATA: Final = ROOT / "tests" / "data" / "generate"
COLUMNS: Final = ["phase", "requests", "c_sq", "c_sk", "g_sq", "g_sk"]
# Prompts of 2 x 10 tokens, then a token for each of the two.
PREFILL: Final = ("prefill", 2, 20, 20, 0, 0)
GENERATE: Final = "transformers/generation/utils.py(2581): generate"


def _rows(steps: pd.DataFrame) -> list[tuple[Any, ...]]:
    plain = steps[COLUMNS].astype(object)
    return [tuple(row) for row in plain.where(plain.notna(), None).to_numpy().tolist()]


def test_a_cache_that_grows_says_the_keys_of_each_step() -> None:
    steps = load(DATA / "dynamic.json.gz").serving_steps()

    decodes = [("decode", 2, 0, 0, 2, 2 * keys) for keys in range(11, 15)]
    assert _rows(steps) == [PREFILL, *decodes]
    assert set(steps["dialect"]) == {"hf generate"}
    assert steps["contradiction"].isna().all()
    # One new token for each prompt, of the keys that are there.
    assert steps["g_sqsk"].tolist() == [0, 22, 24, 26, 28]
    assert steps["c_sqsq"].tolist()[0] == 2 * 100


def test_a_static_cache_says_keys_at_most() -> None:
    steps = load(DATA / "static.json.gz").serving_steps()

    assert _rows(steps) == [PREFILL, *[("decode", 2, 0, 0, 2, None)] * 4]
    assert set(steps["contradiction"].dropna()) == {"the cache does not grow: keys are at most 14"}


def test_of_two_models_the_smaller_drafts_and_the_larger_verifies() -> None:
    steps = load(DATA / "assisted.json.gz").serving_steps()

    phases = steps["phase"].tolist()
    assert phases[:2] == ["draft", "prefill"]
    assert phases[2:8] == ["draft", "verify"] * 3
    verify = steps[steps["phase"] == "verify"]
    # A token that was chosen and a draft, of which each round keeps one at least.
    assert verify["g_sq"].tolist() == [2, 2, 2]
    assert verify["g_sk"].tolist() == [12, 13, 14]
    assert steps["out_least"].sum() >= 4


def test_commands_take_recordings_in_which_no_device_worked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(DATA / "dynamic.json.gz")

    for words in (["prof", "--by", "phase"], ["prof", "--by", "step"], ["prof", "--by", "kind"]):
        assert main([words[0], path, *words[1:]]) == 0
    assert main(["report", path, "-o", str(tmp_path / "page.html")]) == 0
    assert main(["idle", path, "--by", "phase"]) == 0
    assert main(["compare", path, path, "--by", "phase"]) == 2
    assert "5 steps by the names of hf generate" in capsys.readouterr().out


def _call(at: int, tokens: int, keys: int, *, layers: int = 2, name: str = "X") -> list[Event]:
    """Return a call of a model, of one request."""
    return [
        frame(f"nn.Module: {name}ForCausalLM_0", at, 90),
        op("aten::embedding", at + 1, 2, dims=[[50, 8], [1, tokens]], types=["float", "long int"]),
        *(
            op(
                "aten::scaled_dot_product_attention", at + 10 + 10 * layer, 5,
                dims=[[1, 2, tokens, 4], [1, 2, keys, 4], [1, 2, keys, 4]], types=["float"] * 3,
            )
            for layer in range(layers)
        ),
    ]  # fmt: skip


def test_work_of_devices_belongs_to_the_call_that_launched_it(tmp_path: Path) -> None:
    found = load_events(
        tmp_path, frame(GENERATE, 0, 1000), _call(100, 5, 5), _call(200, 1, 6),
        launched(120, 1, at=205, dur=30), launched(220, 2, at=240, dur=10),
        launched(1100, 3, at=1110, dur=7),
    ).serving_steps()  # fmt: skip

    assert found["phase"].tolist() == ["prefill", "decode", "outside"]
    assert found["device_ns"].tolist() == [30_000, 10_000, 7_000]


def test_more_tokens_of_a_prompt_extend_what_is_there(tmp_path: Path) -> None:
    found = load_events(
        tmp_path, frame(GENERATE, 0, 1000), _call(100, 5, 5), _call(200, 3, 8)
    ).serving_steps()

    assert _rows(found) == [("prefill", 1, 5, 5, 0, 0), ("extend", 1, 3, 8, 0, 0)]


def test_a_model_that_is_called_elsewhere_is_no_step(tmp_path: Path) -> None:
    """Neither outside of generate, nor where a function of the user's is called so."""
    run = load_events(
        tmp_path, frame("my/generation/utils.py(1): generate", 0, 150), _call(20, 5, 5),
        frame(GENERATE, 200, 20), _call(300, 5, 5),
    )  # fmt: skip

    assert run.serving_steps().empty
    assert run_serving.is_of_server(run.tables)


@pytest.mark.parametrize("lacking", ["dims", "attention"])
def test_without_shapes_sums_are_not_known(tmp_path: Path, lacking: str) -> None:
    events = _call(100, 5, 5)
    if lacking == "dims":
        for event in events[1:]:
            del event["args"]["Input Dims"]
    else:
        events = events[:2]

    found = load_events(tmp_path, frame(GENERATE, 0, 1000), events).serving_steps()

    assert len(found) == 1
    assert found["phase"].isna().all()
    assert found[["c_sk", "g_sk"]].isna().all(axis=None) or lacking == "attention"
    assert found["c_sk"].isna().all()
