"""What the page with the dials carries: the answers of `pyprof2 batch`, and hunks of patches."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.analysis.summaries.batch.limits import Tried
from pyprof2.api.batch import held_by_category
from pyprof2.cli import main
from pyprof2.lsp.batch_size import code_of
from pyprof2.reports.batch import BatchQuery
from pyprof2.reports.dials import DialsQuery, document
from tests.dialled import SIZES, held_bytes, samples, step_ns, workspace

if TYPE_CHECKING:
    from pyprof2.analysis.summaries.batch.model import Model


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace(tmp_path_factory.mktemp("dials") / "ws")


@pytest.fixture(scope="module")
def model(script: Path) -> Model:
    return pyprof2.batch_model({size: script.with_name(f"b{size}.pyprof2") for size in SIZES})


def made(model: Model, **options: Any) -> dict[str, Any]:
    return document(model, DialsQuery(BatchQuery(**options), "1"))


def test_a_dial_stands_on_what_the_recordings_are_made_of(model: Model) -> None:
    found = made(model)

    # 78.4 MB fit. 5 MB and 1 MB per sample are 78 MB at 73; 5 % of an interval, (B / 32 - 1) times:
    # its upper end is 78.3 MB at 69 and 79.5 at 70, its lower one 77.8 at 79 and 78.6 at 80.
    limits = found["limits"]
    assert (limits["largest"], limits["expected"], limits["most"]) == (69, 73, 79)
    assert limits["usable_bytes"] == 78_400_000
    assert found["batches"] == list(range(1, 73 * 5 // 4 + 1))
    for at, size in enumerate(found["batches"]):
        assert found["time"]["value"][at] == step_ns(size)
        assert found["memory"]["value"][at] == held_bytes(size)
        assert found["throughput"]["value"][at] == pytest.approx(samples(size), rel=1e-12)
    at = found["batches"].index(24)
    assert found["status"][at] == "interpolated"
    assert (found["memory"]["lo"][at], found["memory"]["hi"][at]) == (
        pytest.approx(27_550_000, abs=1), 30_450_000,
    )  # fmt: skip
    assert found["status"][found["batches"].index(64)] == "extrapolated 2x"


def test_parts_add_up_to_kernels_and_to_memory(model: Model) -> None:
    found = made(model)

    # 16 is recorded, 24 is not.
    for size in (16, 24):
        at = found["batches"].index(size)
        times = {(p["phase"], p["group"]): p["values"][at] for p in found["time_parts"]}
        assert times == {
            ("forward", "matmul"): pytest.approx(10_000 * size), ("optimizer", "optimizer"): 20_000,
        }  # fmt: skip
    at = found["batches"].index(24)
    held = {part["name"]: part["values"][at] for part in found["memory_parts"]}
    assert held == {
        "grows with the batch": pytest.approx(24e6), "does not grow": pytest.approx(5e6),
    }  # fmt: skip


def test_categories_have_slopes_of_their_own_and_add_up(model: Model, script: Path) -> None:
    runs = {size: script.with_name(f"b{size}.pyprof2") for size in SIZES}
    held = held_by_category(runs)
    assert held[16] == {"temporary": 16_000_000, "parameter_or_buffer": 5_000_000}

    found = document(model, DialsQuery(BatchQuery(), "1", held=held))

    parts = {part["name"]: part["values"] for part in found["memory_parts"]}
    assert list(parts) == ["temporary", "parameter_or_buffer"]
    for at, size in enumerate(found["batches"]):
        assert parts["temporary"][at] == pytest.approx(1e6 * size)
        assert parts["parameter_or_buffer"][at] == pytest.approx(5e6)
        assert sum(values[at] for values in parts.values()) == pytest.approx(
            found["memory"]["value"][at]
        )


def test_categories_of_another_moment_than_the_peak_are_not_shown(model: Model) -> None:
    held = {size: {"temporary": 1_000_000 * size} for size in SIZES}

    found = document(model, DialsQuery(BatchQuery(), "1", held=held))

    assert [p["name"] for p in found["memory_parts"]] == ["grows with the batch", "does not grow"]


def test_rows_are_those_of_batch(model: Model, script: Path, capsys: Any) -> None:
    inputs = [f"{size}={script.with_name(f'b{size}.pyprof2')}" for size in SIZES]
    found = made(model)

    assert main(["batch", *inputs, "--at", "1,24,50,80", "--format", "json", "-q"]) == 0

    names = {"step_time_ns": "time", "throughput": "throughput", "memory_bytes": "memory"}
    rows = [r for r in json.loads(capsys.readouterr().out) if r["measure"] in names]
    assert len(rows) == 12
    for row in rows:
        at = found["batches"].index(row["batch_size"])
        column = found[names[row["measure"]]]
        assert [column[name][at] for name in ("value", "lo", "hi")] == [
            row[name] for name in ("value", "lo", "hi")
        ]
        assert found["status"][at] == row["status"]


def test_far_sizes_are_64_of_each_doubling_and_what_matters_is_always_there(model: Model) -> None:
    found = made(model, capacity=2_000_000_000)

    sizes = found["batches"]
    assert sizes[:256] == list(range(1, 257))
    assert [size for size in sizes if 512 <= size < 1024 and size % 8 == 0] == list(
        range(512, 1024, 8)
    )
    limits = found["limits"]
    ends = [limits[name] for name in ("largest", "expected")]
    assert {*ends, *(end + 1 for end in ends), limits["enough"], *SIZES} <= set(sizes)


def test_what_was_tried_is_no_prediction(model: Model) -> None:
    tried = {48: Tried(48, failure="CUDA out of memory", out_of_memory=True)}

    found = made(model, tried=tried)

    at = found["batches"].index(48)
    assert (found["status"][at], found["memory"]["value"][at]) == ("out of memory", None)


def patched(folder: Path, place: dict[str, Any], number: int) -> bytes:
    """Return a file after the patch of `web/dials/patch.js`, which node runs, by `git apply`."""
    if shutil.which("node") is None:
        pytest.skip("no node")
    from tests.conftest import ROOT

    program = (
        f"import {{ patch }} from {json.dumps((ROOT / 'web/dials/patch.js').as_uri())};"
        f"process.stdout.write(patch({json.dumps(place['hunk'])}, {number}));"
    )
    command = ["node", "--input-type=module", "-e", program]
    text = subprocess.run(command, check=True, capture_output=True).stdout
    for tool in (["git", "apply", "--check"], ["git", "apply"]):
        subprocess.run([*tool, "-"], input=text, cwd=folder, check=True)
    return Path(folder, place["hunk"]["path"]).read_bytes()


@pytest.mark.parametrize(
    ("name", "source", "literal"),
    [
        ("a.py", "batch_size = 32\n", "32"),
        ("a.py", "batch_size = 32", "32"),
        ("a.py", "\n\n\n\nx = '😀'; bs = 32  # é\ny\n\n\n\nz", "32"),
        ("a.py", "x = 1\r\nbatch_size = 32\r\ny = 2\r\n", "32"),
        ("a.py", "\ufeffx = 1\n# \u2028 \x85\nbatch_size = 32\n", "32"),
        ("a b.py", "x = 1\n\x0cbatch_size = 0x20\n", "0x20"),
        ("a.yaml", "t: {lr: 1,   batch_size: &b 32}  # keep\n", "32"),
    ],
)
def test_a_patch_changes_exactly_the_literal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str, literal: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(source.encode())

    code = code_of(path.relative_to(tmp_path), SIZES)

    assert (code["chosen"], code["refusal"]) == (0, "")
    assert patched(tmp_path, code["places"][0], 48) == source.replace(literal, "48").encode()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("batch_size = 2 * 16\n", "a.py:1: 2 * 16: it is computed: change it by hand"),
        ("x = 1\n", "no batch size was found in a.py"),
        ("batch_size = 32\nbs = 16\n", "choose which of these is the batch size"),
        ("batch_size = 64\n", "it is 64, and the recordings have batches of 8, 16, 32"),
    ],
)
def test_code_is_read_only_with_a_reason(tmp_path: Path, source: str, words: str) -> None:
    path = tmp_path / "a.py"
    path.write_text(source)

    assert words in code_of(path, SIZES)["refusal"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--code", "train.py"], "--code is for the page with dials: say -o NAME.html too"),
        (["-o", "d.html", "--format", "csv"], "--format csv is no page"),
        (["-o", "d.html", "--code", "no.py"], "no.py: No such file"),
        (["-o", "d.html", "--code", "train.txt"], "neither a program (.py) nor YAML"),
        (["-o", "d.html", "--code", "bad.py"], "bad.py: cannot be read as Python"),
        (["-o", "d.html", "--code", "latin.py"], "latin.py: it is not UTF-8"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], words: str
) -> None:
    folder = script.parent
    monkeypatch.chdir(folder)
    (folder / "train.txt").write_text("batch_size = 32\n")
    (folder / "bad.py").write_text("batch_size = (\n")
    (folder / "latin.py").write_bytes(b"# \xe9\nbatch_size = 32\n")
    inputs = [f"{size}=b{size}.pyprof2" for size in SIZES]

    assert main(["batch", *inputs, *arguments]) != 0

    assert words in capsys.readouterr().err
    assert not (folder / "d.html").exists()
