"""What an agent cannot do: leave its folders, write, or keep the server busy for ever."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2 import errors
from pyprof2.agents.folders import Folders
from tests.agents.conftest import COMPILED, DEMO, GPU, asked, laid_out
from tests.analysis.job.job_generator import Job, simulate, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyprof2.agents.answers import AgentTools
    from tests.agents.conftest import Said

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def agent_tools(recordings: Path) -> Iterator[AgentTools]:
    """Return tools that keep what is open, so a test names what it is of."""
    from pyprof2.agents.answers import AgentTools

    found = AgentTools(Folders.of([recordings]))
    yield found
    found.close()


def test_sql_gives_numbers_that_json_has_and_no_long_texts(agent_tools: AgentTools) -> None:
    from pyprof2.reports.files import json_text

    demo = agent_tools.open("demo.json.gz")["data"]["id"]

    said = agent_tools.sql("SELECT 'inf'::DOUBLE AS a, repeat('x', 300) AS b", demo)

    (row,) = json.loads(json_text(said))["data"]["rows"]
    assert row["b"] == f"{'x' * 200}…"
    assert not isinstance(row["a"], float)


def test_sql_keeps_columns_of_one_name_apart(agent_tools: AgentTools) -> None:
    demo = agent_tools.open("demo.json.gz")["data"]["id"]

    (row,) = agent_tools.sql("SELECT 1 AS a, 2 AS a", demo)["data"]["rows"]

    assert row == {"a": 1, "a (2)": 2}


@pytest.mark.slow
def test_the_files_of_a_large_job_do_not_take_the_place_of_rows(tmp_path: Path) -> None:
    from pyprof2.agents.answers import AgentTools

    (tmp_path / "job").mkdir()
    write(simulate(Job(14, steps=1)), tmp_path / "job")
    for file in (tmp_path / "job").iterdir():
        file.rename(file.with_name("x" * 235 + file.name))
    agent_tools = AgentTools(Folders.of([tmp_path]))

    agent_tools.open("job")
    answer = agent_tools.top("rank")
    agent_tools.close()

    assert answer["evidence"]["recording"][-1] == "and 6 more"
    assert len(answer["data"]["rows"]) > 2


def test_what_is_hostile_is_an_error_for_the_client_and_the_server_lives_on(
    ask: Callable[..., list[Said]],
) -> None:
    opened, *refused, after = ask(
        ("open", {"trace": GPU}),
        ("sql", {"query": "SELECT * FROM read_csv('/etc/passwd')"}),
        ("open", {"trace": "/etc/passwd"}),
        ("explain", {"id": "t1/rank0/predict:/etc/passwd"}),
        ("explain", {"id": "t7/rank0/kernel:1"}),
        ("top", {"axis": "nonsense"}),
        ("top", {"axis": "op", "filter": {"nonsense": 1}}),
        ("top", {"axis": "op", "columns": ["nonsense"]}),
        ("sql", {"query": "SELECT count(*) AS n FROM kernels"}),
    )

    assert not opened.is_error
    assert all(each.is_error for each in refused)
    assert not [each for each in refused if "root:" in each.text]
    assert after.data["rows"] == [{"n": 238}]


def test_a_pattern_is_text_and_so_takes_no_time(agent_tools: AgentTools) -> None:
    demo = agent_tools.open("demo.json.gz")["data"]["id"]

    rows = agent_tools.top("kernel", {"op": "(a+)+$"}, trace=demo)["data"]["rows"]
    either = agent_tools.top("op", {"op": "aten::add_|aten::fill_"}, trace=demo)["data"]["rows"]

    assert rows == []
    assert {row["op"] for row in either} == {"aten::add_", "aten::fill_"}


@pytest.mark.parametrize(
    "name",
    ["../secret/net.json.gz", "sub/../../secret/net.json.gz", "ABSOLUTE", "file.json.gz",
     "folder", "within", "named.txt", "s3://bucket/net.json.gz", "-", ".", "", "\0"],
)  # fmt: skip
def test_nothing_outside_of_the_folders_is_opened(name: str, tmp_path: Path) -> None:
    inside, secret = tmp_path / "inside", tmp_path / "secret"
    for folder in (inside / "sub", inside / "within", secret):
        folder.mkdir(parents=True)
    (secret / "net.json.gz").write_bytes(DEMO.read_bytes())
    (secret / "net.pyprof2").mkdir()
    (secret / "net.pyprof2" / "manifest.json").write_text("{}")
    (inside / "file.json.gz").symlink_to(secret / "net.json.gz")
    (inside / "folder").symlink_to(secret)
    (inside / "within" / "net.json.gz").symlink_to(secret / "net.json.gz")
    (inside / "named.txt").write_text(f"{secret / 'net.pyprof2'}\n")

    with pytest.raises(errors.TraceError) as raised:
        Folders.of([inside]).find(name.replace("ABSOLUTE", str(secret / "net.json.gz")))

    assert "not in the folders" in str(raised.value) or "out of the folders" in str(raised.value)


def test_nobody_learns_what_there_is_outside(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "there.json").write_text("{}")
    folders = Folders.of([tmp_path / "inside"])
    said = []
    for name in ("there", "not"):
        with pytest.raises(errors.TraceError) as raised:
            folders.find(f"../{name}.json")
        said.append(str(raised.value).replace(name, "", 1))

    assert said[0] == said[1]


def test_what_is_outside_is_not_listed(tmp_path: Path) -> None:
    inside = laid_out(tmp_path / "inside")
    (tmp_path / "other.json.gz").write_bytes(b"")
    (inside / "link.json.gz").symlink_to(tmp_path / "other.json.gz")
    (inside / "up").symlink_to(tmp_path)

    assert Folders.of([inside]).listed() == (["demo.json.gz", "gpu/h200.json.gz"], False)


def test_a_recording_is_parsed_without_what_lies_outside(tmp_path: Path) -> None:
    from pyprof2.agents.answers import AgentTools

    inside, outside = tmp_path / "a" / "inside", tmp_path / "a" / "outside"
    inside.mkdir(parents=True)
    outside.mkdir()
    recording = json.loads(_unpacked(COMPILED / "h200.json.gz"))
    (inside / "rank0.json").write_text(json.dumps(recording))
    # Beside it a link to a log that is outside; one folder above, notes of graphs.
    (outside / "log").write_bytes(_unpacked(COMPILED / "h200.log.gz"))
    (inside / "dedicated_log_torch_trace_0.log").symlink_to(outside / "log")
    notes = tmp_path / "a" / "kernel_annotations_rank0_1.pkl"
    notes.write_bytes(b"no pickle")
    agent_tools = AgentTools(Folders.of([inside]))

    said = agent_tools.open("rank0.json")
    text = json.dumps(said)
    # With the log there are parts of kernels; without it there are none.
    agent_tools.close()
    assert "kernel_parts" in said["data"]["empty_tables"]
    assert "annotations" not in text


def test_files_that_a_recording_names_are_not_looked_at(tmp_path: Path) -> None:
    from pyprof2.agents.answers import AgentTools

    inside = tmp_path / "inside"
    inside.mkdir()
    code = tmp_path / "code.py"
    code.write_text("secret = 1\n")
    os.utime(code, (0, 0))
    text = _unpacked(DEMO).decode().replace("demo_train.py", str(code))
    (inside / "net.json").write_text(text)
    agent_tools = AgentTools(Folders.of([inside]))
    agent_tools.open("net.json")

    (opened,) = agent_tools._opened.values()
    found = opened.run.tables.manifest["code"]
    agent_tools.close()
    assert [each["path"] for each in pyprof2.load(inside / "net.json").tables.manifest["code"]] == [
        str(code)
    ]
    assert found == []


def test_nothing_is_written_and_what_was_temporary_is_gone(tmp_path: Path) -> None:
    folder = laid_out(tmp_path / "traces")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    asked(
        folder,
        [("open", {"trace": GPU}), ("overview", {}), ("top", {"axis": "source"})],
        TMPDIR=str(scratch),
    )

    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("recording", ["demo.json.gz", GPU])
@pytest.mark.parametrize(
    "axis",
    ["kernel", "name", "op", "signature", "layer", "source", "stack", "category", "step,rank",
     "idle:cause", "idle:cause,source", "findings", "lacks"],
)  # fmt: skip
def test_every_answer_fits(agent_tools: AgentTools, recording: str, axis: str) -> None:
    from pyprof2.reports.files import json_text

    opened = agent_tools.open(recording)["data"]["id"]
    said: dict[str, Any] = agent_tools.top(axis, trace=opened)

    assert len(json_text(said).encode()) <= 6000
    assert said["data"]["rows"]
    if len(said["data"]["rows"]) < said["data"]["of"]:
        assert said["next"][-1]["arguments"]["skip"] == len(said["data"]["rows"])


def test_the_slow_rank_of_a_job_is_named(tmp_path: Path) -> None:
    from pyprof2.agents.answers import AgentTools

    (tmp_path / "job").mkdir()
    write(simulate(Job(4, steps=3, slow={2: 1.2})), tmp_path / "job")
    agent_tools = AgentTools(Folders.of([tmp_path]))

    agent_tools.open("job")
    said = agent_tools.overview()
    rows = agent_tools.top("ranks")["data"]["rows"]
    agent_tools.close()

    assert said["data"]["which_rank_is_slow"][0].lower().startswith("rank 2 is slow")
    assert [row["rank"] for row in rows if row["verdict"] == "straggler"] == [2]


def test_rows_that_are_left_out_follow_in_the_next_call(agent_tools: AgentTools) -> None:
    demo = agent_tools.open("demo.json.gz")["data"]["id"]
    found: list[str] = []
    said = agent_tools.top("signature", columns=["time_ns"], trace=demo)
    while True:
        found += [row["signature"] for row in said["data"]["rows"]]
        more = [each["arguments"] for each in said["next"] if "skip" in each["arguments"]]
        if not more:
            break
        said = agent_tools.top(**more[0])

    assert len(found) == said["data"]["of"]


def _unpacked(path: Path) -> bytes:
    import gzip

    return gzip.decompress(path.read_bytes())
