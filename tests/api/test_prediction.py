"""A step on other devices and on more of them, from recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.hardware.devices import DEVICES, find_device
from pyprof2.api.prediction import COLUMNS_SHOWN, PredictedStep, Question, cheapest
from pyprof2.errors import UsageError
from tests.kineto_events import kernel, launch, load_events, op, step
from tests.training_trace import training_trace, write_ranks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

H100 = find_device("H100 SXM")
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"
SAME = ["A100 PCIe 80GB", "L4", "H200 SXM", "B200", "H100 PCIe"]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("training") / "net.json"
    path.write_bytes(training_trace())
    return pyprof2.load(path)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pyprof2.load(write_ranks(tmp_path_factory.mktemp("job"), 4))


def one_kernel(folder: Path, name: str = GEMM, **fields: Any) -> Run:
    """Return a run of a step with one product, on a device that is named."""
    dims = {"dims": [[4096, 4096], [4096, 4096]], "types": ["c10::BFloat16"] * 2}
    dims |= {"dims": fields["dims"], "types": []} if "dims" in fields else {}
    events = [
        step(1, 0, 1000 + int(str(fields.get("dur", 2000)))),
        op(str(fields.get("op", "aten::mm")), 10, 50, id=1, **dims),
        launch(20, 1, dur=5, id=1),
        kernel(100, int(str(fields.get("dur", 2000))), 1, {"External id": 1}, name=name),
    ]
    device = {"id": 0, "name": fields.get("device", "NVIDIA H100 80GB HBM3")}
    return load_events(folder, *events, deviceProperties=[device])


# -- the source itself ---------------------------------------------------------------------------


def test_the_recorded_device_takes_what_was_recorded(training: Run, job: Run) -> None:
    for run in (training, job):
        found = run.predict("H100 SXM")
        prediction = PredictedStep(run.tables)
        number, took = prediction.window
        steps = run.steps[run.steps["rank"] == prediction.tables.rank]

        assert found["step_ms"].tolist() == [took / 1e6]
        assert took == steps[steps["step"] == number]["dur_ns"].iloc[0]
        assert found["lo_ms"].tolist() == found["hi_ms"].tolist() == found["step_ms"].tolist()
        assert found["recorded_ms"].tolist() == found["step_ms"].tolist()
        assert found["eta_source"].tolist() == ["recorded"]
        for number, took in zip(steps["step"], steps["dur_ns"], strict=True):
            assert run.predict("H100 SXM", step=number)["step_ms"].tolist() == [took / 1e6]


def test_every_real_recording_is_predicted_for_itself_to_the_ns(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)
    prediction = PredictedStep(run.tables)
    source = prediction.source
    if source is None:
        assert prediction.rows_of(DEVICES[0], _question())[0]["why"].endswith("--recorded-on")
        return
    (row,) = prediction.rows_of(source, _question())

    assert round(row["step_ms"] * 1e6) == prediction.window[1]
    for each in prediction._windows:
        (row,) = PredictedStep(run.tables, each.step).rows_of(source, _question())
        assert round(row["step_ms"] * 1e6) == each.dur_ns
    # A device that is the same but for its name has the same kernels: only the replay is new.
    other = replace(source, name="the same")
    (row,) = prediction.rows_of(other, _question())
    if row.get("lo_ms") is not None:
        own = prediction.rows_of(source, _question())[0]
        assert row["busy_ms"] == pytest.approx(own["busy_ms"], rel=1e-6)
        assert row["lo_ms"] <= own["step_ms"] <= row["hi_ms"]


def _question() -> Question:
    return Question()


# -- other devices -------------------------------------------------------------------------------


def test_values_are_inside_intervals_for_every_device(training: Run) -> None:
    found = training.predict("all")
    known = found[found["step_ms"].notna()]

    assert list(found) == list(COLUMNS_SHOWN)
    assert len(found) == len(DEVICES)
    assert len(known) > 20
    assert (known["lo_ms"] <= known["step_ms"]).all()
    assert (known["step_ms"] <= known["hi_ms"]).all()
    shares = known[["compute_pct", "memory_pct", "extrapolated_pct", "kept_pct"]].sum(axis=1)
    assert shares.astype(float).to_numpy() == pytest.approx(np.full(len(known), 100.0))
    assert found[found["step_ms"].isna()]["why"].notna().all()


@pytest.mark.parametrize("what", ["peak", "bandwidth"])
def test_a_faster_device_never_takes_longer(training: Run, what: str) -> None:
    assert H100 is not None
    base = replace(H100, compute_capability="9.1")
    times = []
    for factor in (0.25, 0.5, 1.0, 2.0, 4.0, 64.0):
        more = (
            {"memory_bytes_per_s": factor * 3350e9}
            if what == "bandwidth"
            else {
                "matrix_flop_per_s": {n: factor * p for n, p in base.matrix_flop_per_s.items()},
                "vector_flop_per_s": {n: factor * p for n, p in base.vector_flop_per_s.items()},
            }
        )
        row = training.predict(replace(base, name=f"× {factor}", **more)).iloc[0]
        times.append((row["lo_ms"], row["hi_ms"]))

    assert times == sorted(times, reverse=True)
    assert times[0][0] > times[-1][0]


def test_other_vendors_have_an_interval_alone(tmp_path: Path) -> None:
    run = one_kernel(tmp_path, dur=200_000)
    assert pd.notna(run.predict("A100 PCIe 80GB").iloc[0]["step_ms"])
    row = run.predict("MI300X").iloc[0]

    assert pd.isna(row["step_ms"])
    assert row["lo_ms"] < row["hi_ms"]
    assert "another vendor" in row["why"]
    assert "idle" not in row["why"]


def test_an_idle_step_has_an_interval_alone(tmp_path: Path) -> None:
    events = [
        step(1, 0, 30_000),
        op("aten::mm", 10, 50, id=1, dims=[[64, 64], [64, 64]], types=["c10::BFloat16"] * 2),
        launch(20, 1, dur=5, id=1),
        kernel(100, 20, 1, {"External id": 1}, name=GEMM),
    ]
    run = load_events(
        tmp_path, *events, deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    )
    row = run.predict("A100 PCIe 80GB").iloc[0]

    assert pd.isna(row["step_ms"])
    assert "idle" in row["why"]
    assert row["bound_by"] == "host"


def test_a_larger_interval_holds_more_often(training: Run) -> None:
    narrow, wide = (training.predict("L4", level=level).iloc[0] for level in (0.5, 0.95))

    assert wide["lo_ms"] < narrow["lo_ms"] < narrow["hi_ms"] < wide["hi_ms"]


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "target", "why"),
    [
        pytest.param({"device": "Some GPU"}, "H100 SXM", "the table of devices lacks", id="source"),
        pytest.param({}, "V100 PCIe", "no units for bf16", id="dtype"),
        pytest.param({"op": "aten::no_such"}, "A100 PCIe 80GB", "would be extrapolated", id="no F"),
        pytest.param({"op": "aten::_sparse_mm"}, "A100 PCIe 80GB", "sparse", id="sparse op"),
        pytest.param({"name": "void cusparse::csrmm_kernel<float>"}, "A100 PCIe 80GB", "sparse",
                     id="sparse kernel"),
        pytest.param({}, "RTX 3060 Ti", "bandwidth", id="no bandwidth"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_refused_with_the_reason(
    tmp_path: Path, fields: dict[str, str], target: str, why: str
) -> None:
    row = one_kernel(tmp_path, **fields).predict(target).iloc[0]

    assert pd.isna(row["step_ms"])
    assert pd.isna(row["lo_ms"])
    assert why in row["why"]


SHAPES = "without counts of FLOPs and bytes (record shapes)"
FORMULA = "whose FLOPs and bytes no formula counts"
PEAKS = "kernels in bf16, whose peaks are not known"


@pytest.mark.parametrize(
    ("fields", "target", "why"),
    [
        ({"dims": []}, "A100 PCIe 80GB", SHAPES),
        ({"op": "mine::op"}, "A100 PCIe 80GB", FORMULA),
        ({}, "V100 PCIe", PEAKS),
    ],
)
def test_the_reason_of_an_extrapolation_is_the_one_of_this_recording(
    tmp_path: Path, fields: dict[str, Any], target: str, why: str
) -> None:
    row = one_kernel(tmp_path, **fields).predict(target).iloc[0]

    assert [each for each in (SHAPES, FORMULA, PEAKS) if each in row["why"]] == [why]


def test_kernels_of_graphs_without_op_are_refused(shared_trace: Callable[[str], Path]) -> None:
    run = pyprof2.load(shared_trace("kineto/tl_sglang_dec.json.gz"))

    assert "CUDA graphs" in run.predict("MI325X").iloc[0]["why"]


def test_names_and_steps_that_are_not_there_are_errors(training: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which of H100 SXM"):
        training.predict("H100")
    with pytest.raises(UsageError, match="did you mean H100 SXM"):
        training.predict("H10 SXM")
    with pytest.raises(UsageError, match="no step 77"):
        training.predict("L4", step=77)
    with pytest.raises(UsageError, match="no device worked"):
        load_events(tmp_path, op("aten::mm", 0, 10)).predict("L4")


# -- a device of a file --------------------------------------------------------------------------


def test_a_file_of_the_same_numbers_is_predicted_alike(training: Run, tmp_path: Path) -> None:
    from pyprof2.analysis.hardware.devices import load_device

    path = tmp_path / "mine.json"
    content = {
        "name": "mine", "memory_gb_per_s": 1935, "vector_tflops": {"f32": 19.5, "bf16": 39},
        "matrix_tflops": {"bf16": 312, "f16": 312, "tf32": 156}, "vendor": "nvidia",
        "compute_capability": "8.0", "watts": 300,
    }  # fmt: skip
    path.write_text(json.dumps(content), encoding="utf-8")
    mine = training.predict(load_device(path)).iloc[0]
    theirs = training.predict("A100 PCIe 80GB").iloc[0]

    assert mine["step_ms"] == pytest.approx(theirs["step_ms"], rel=0.15)
    path.write_text(
        json.dumps(content | {"eta": {"16": 0.4}, "eta_source": "me"}), encoding="utf-8"
    )
    slower = training.predict(load_device(path)).iloc[0]
    assert slower["step_ms"] > 1.2 * mine["step_ms"]
    assert (mine["eta_source"], slower["eta_source"]) == ("class", "file")


# -- more of them --------------------------------------------------------------------------------


def test_more_ranks_and_slower_links_never_take_less(training: Run) -> None:
    def steps(**question: object) -> list[float]:
        found = training.predict("A100 PCIe 80GB", **question)  # type: ignore[arg-type]
        assert (found["lo_ms"] <= found["step_ms"]).all()
        assert (found["step_ms"] <= found["hi_ms"]).all()
        assert (found["all_hi_ms"] >= found["hi_ms"]).all()
        times: list[float] = found["step_ms"].tolist()
        return times

    by_rank = steps(ranks=[1, 2, 3, 4, 8, 16], link="nvlink4")
    assert by_rank == sorted(by_rank)
    by_link = [steps(ranks=[8], link=str(rate))[0] for rate in (900, 100, 10, 1, 0.1)]
    assert by_link == sorted(by_link)
    assert by_link[0] < by_link[-1]
    assert steps(ranks=[8], link="1", overlap=False)[0] >= steps(ranks=[8], link="1")[0] * 0.999


def test_gradients_after_the_backward_pass_add_their_time(training: Run) -> None:
    from pyprof2.analysis.prediction.links import link_named
    from pyprof2.analysis.prediction.parameters import shipped

    prediction = PredictedStep(training.tables)
    found = training.predict("H100 SXM", ranks=[1, 8], link="nvlink4", overlap=False)
    gradients = prediction.gradients(np.zeros(prediction.own.table.num_rows))
    assert gradients is not None
    added = link_named("nvlink4", shipped()).all_reduce(8, np.array([gradients.bytes.sum()]))[0]

    # The optimizer would have begun some µs after the last gradient was ready.
    assert found["exposed_comm_ms"].tolist() == pytest.approx([0, added / 1e6], abs=0.01)
    assert found["step_ms"].diff().iloc[1] == pytest.approx(added / 1e6, abs=0.01)


def test_a_job_is_compared_with_its_own_prediction(job: Run) -> None:
    found = job.predict("H100 SXM", ranks=[1, 4], link="nvlink4").set_index("ranks")
    one, four = (found.loc[count].to_dict() for count in (1, 4))

    assert four["recorded_ms"] == pytest.approx(PredictedStep(job.tables).window[1] / 1e6)
    assert pd.isna(one["recorded_ms"])
    assert four["lo_ms"] <= four["recorded_ms"] <= four["hi_ms"]
    assert "all-reduces that were recorded" in four["why"]


def test_inference_has_no_gradients(tmp_path: Path) -> None:
    row = one_kernel(tmp_path).predict("H100 SXM", ranks=[2], link="nvlink4").iloc[0]

    assert pd.isna(row["step_ms"])
    assert "no gradients" in row["why"]


# -- money ---------------------------------------------------------------------------------------


def test_money_is_price_times_time(training: Run) -> None:
    found = training.predict(["H100 SXM", "L4"], batch=8, prices={"L4": 0.5}).set_index("device")
    row = found.loc["L4"]

    assert row["money_per_step"] == pytest.approx(0.5 * row["step_ms"] / 3.6e6)
    assert row["money_per_million"] == pytest.approx(1e6 / 8 * row["money_per_step"])
    assert row["money_per_step_lo"] < row["money_per_step"] < row["money_per_step_hi"]
    assert row["throughput"] == pytest.approx(8000 / row["step_ms"])
    assert row["throughput_lo"] < row["throughput"] < row["throughput_hi"]
    assert pd.isna(found.loc["H100 SXM"].to_dict()["money_per_step"])


def test_the_cheapest_that_is_sure_to_be_in_time() -> None:
    frame = pd.DataFrame(
        {
            "device": ["slow", "fast", "unknown"], "ranks": [1, 1, 1], "hi_ms": [200.0, 50.0, 10.0],
            "money_per_step": [1e-6, 2e-6, None], "money_per_step_hi": [2e-6, 3e-6, None],
        }
    )  # fmt: skip

    # A million steps take 55.6 h at 200 ms, and 13.9 h at 50 ms.
    assert cheapest(frame, 1_000_000, 60, 1) == 0
    assert cheapest(frame, 1_000_000, 20, 1) == 1
    assert cheapest(frame, 1_000_000, 10, 1) is None


# -- other programs' files -----------------------------------------------------------------------


def test_ten_steps_say_how_long_the_slowest_of_ranks_takes(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_bytes(training_trace(steps=12))
    run = pyprof2.load(path)
    found = PredictedStep(run.tables).ddp((2, 4))

    assert found is not None
    assert len(found["bytes"]) == len(found["slowest_ns"][2]) == len(found["slowest_ns"][4])
    pairs = list(zip(found["slowest_ns"][2], found["slowest_ns"][4], strict=True))
    assert all(0 <= two <= four for two, four in pairs)
    assert found["forward_ns"] > 0
    rows = run.predict("H100 SXM", ranks=[1, 8], link="nvlink4")
    assert "fewer than 10 steps" not in rows["why"].iloc[1]


def test_few_steps_say_nothing_of_ranks(training: Run) -> None:
    assert PredictedStep(training.tables).ddp((2, 4)) is None


def test_a_batch_on_another_device_is_that_of_the_model_times_the_prediction(
    tmp_path: Path,
) -> None:
    from pyprof2.api.batch import elsewhere

    path = tmp_path / "net.json"
    path.write_bytes(training_trace())
    run = pyprof2.load(path)
    device = find_device("L4")
    assert device is not None

    ratio = elsewhere({8: run}, [device])["L4"][8]

    row = run.predict("L4").iloc[0]
    here = PredictedStep(run.tables).window[1] / 1e6
    assert ratio.value == pytest.approx(row["step_ms"] / here)
    assert ratio.lo == pytest.approx(row["lo_ms"] / here)
