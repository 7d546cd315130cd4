"""Models held against real recordings, and what their steps cost then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.api import run_serving
from pyprof2.api.run import load
from pyprof2.errors import UsageError
from pyprof2.reports.serving import phases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODELS: Final = (
    "Qwen--Qwen3-8B", "openai--gpt-oss-20b", "meta-llama--Meta-Llama-3.1-8B",
    "deepseek-ai--DeepSeek-R1",
)  # fmt: skip
# The model of each, and by another program: TFLOP, GB, MFU and MBU, at least and at most.
KNOWN: Final = {
    "tl_sglang_dec": ("Qwen--Qwen3-8B", 0.504, (20.0, 20.0), 3.7, (36, 36)),
    "tl_vllm_dec": ("openai--gpt-oss-20b", 0.243, (5.1, 14.1), 1.7, (8.9, 24.7)),
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", KNOWN)
def test_only_the_configuration_of_the_recorded_model_is_taken(
    name: str, model: str, shared_trace: Callable[[str], Path], shared: Path
) -> None:
    run = load(shared_trace(f"kineto/{name}.json.gz"), device="MI300X")
    config = shared / f"reference/serving/{model}_config.json"
    right, tflop, gigabytes, mfu, mbu = KNOWN[name]
    if model != right:
        with pytest.raises(UsageError, match="another model: layers: recorded"):
            run_serving.serving_costs(run.tables, config, 1)
        return

    steps = run_serving.serving_costs(run.tables, config, 1)

    (row,) = phases(steps, run.tables.peaks).to_dict("records")
    assert row["flops_most"] / 1e12 == pytest.approx(tflop, rel=0.003)
    assert (row["bytes_least"] / 1e9, row["bytes_most"] / 1e9) == pytest.approx(gigabytes, abs=0.05)
    assert row["mfu_most_pct"] == pytest.approx(mfu, abs=0.05)
    assert (row["mbu_least_pct"], row["mbu_most_pct"]) == pytest.approx(mbu, abs=0.5)
    assert steps.attrs["checked"][0].startswith("layers ")
