"""The tab in TensorBoard, of the real server, and in a browser."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from tests.builders import mm_trace

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

program = pytest.importorskip("tensorboard.program", reason="no TensorBoard")

TRACE = json.dumps(mm_trace())
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Return a folder of two runs, one of which has two workers, and one of those two spans."""
    folder = tmp_path / "log"
    for name in (
        "first/host_1.100.pt.trace.json", "first/host_1.200.pt.trace.json",
        "first/host_2.100.pt.trace.json", "second/net.json", ".hidden/x.pt.trace.json",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TRACE)
    (folder / "second" / "config.json").write_text('{"lr": 0.1}')
    (folder / "second" / "events.out.tfevents.1").write_bytes(b"")
    (folder / "second" / "bad.1.pt.trace.json").write_text("nonsense")
    return folder


@pytest.fixture
def server(logdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the address of TensorBoard on that folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    board = program.TensorBoard()
    board.configure(argv=[None, "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"])
    address: str = board.launch()
    return address.rstrip("/")


def asked(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 -- our own server
        return json.load(answer)


def ended(server: str, key: str) -> dict[str, Any]:
    """Return the state of a page that is made no more."""
    state: dict[str, Any] = {}
    for _ in range(300):
        state = asked(f"{server}/data/plugin/pyprof2/state?key={key}")
        if state["ready"] or state["error"]:
            return state
        time.sleep(0.2)
    raise AssertionError(state)


def test_each_recording_has_its_run_worker_and_span(server: str) -> None:
    listed = asked(f"{server}/data/plugins_listing")["pyprof2"]
    runs = asked(f"{server}/data/plugin/pyprof2/runs")

    assert (listed["enabled"], listed["tab_name"]) == (True, "pyprof2")
    assert [(each["run"], each["worker"], each["span"]) for each in runs] == [
        ("first", "host_1", "100"), ("first", "host_1", "200"), ("first", "host_2", "100"),
        ("second", "bad", "1"), ("second", "net", ""),
    ]  # fmt: skip


def test_a_page_is_made_once_and_anew_when_the_recording_changes(
    server: str, logdir: Path, tmp_path: Path
) -> None:
    (key,) = (e["key"] for e in asked(f"{server}/data/plugin/pyprof2/runs") if e["worker"] == "net")
    assert ended(server, key) == {"ready": True, "error": None}
    (page,) = (tmp_path / "cache").rglob("*.html")
    made = page.stat().st_mtime_ns
    assert ended(server, key)["ready"]
    assert page.stat().st_mtime_ns == made

    (logdir / "second" / "net.json").write_text(TRACE + " ")

    (new,) = (e["key"] for e in asked(f"{server}/data/plugin/pyprof2/runs") if e["worker"] == "net")
    assert new != key
    assert asked(f"{server}/data/plugin/pyprof2/state?key={key}")["error"] == (
        "this recording is gone"
    )


def test_a_recording_that_cannot_be_read_says_why(server: str) -> None:
    (key,) = (e["key"] for e in asked(f"{server}/data/plugin/pyprof2/runs") if e["worker"] == "bad")

    assert "not a trace" in ended(server, key)["error"]


def test_pages_of_a_folder_that_others_write_are_not_shown(server: str, tmp_path: Path) -> None:
    (cache := tmp_path / "cache" / "pyprof2" / "tensorboard").mkdir(parents=True)
    cache.chmod(0o777)
    key = asked(f"{server}/data/plugin/pyprof2/runs")[0]["key"]
    (cache / f"{key}.html").write_text("planted")

    assert "not this user's alone" in ended(server, key)["error"]


def test_a_store_stands_for_its_recording(logdir: Path) -> None:
    from pyprof2.integrations.tensorboard import shown_below

    pyprof2.parse(logdir / "second" / "net.json")

    (found,) = (each for each in shown_below(logdir) if each.worker == "net")
    assert found.path.name == "net.pyprof2"


def test_the_tab_shows_the_page_of_what_is_chosen(server: str, chromium: Browser) -> None:
    page = chromium.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{server}/#pyprof2")
    tab = page.frame_locator("iframe").first

    assert tab.locator("select[name=span]").input_value(timeout=60_000) == "200"
    inner = tab.frame_locator("iframe")
    inner.get_by_text("linked to ops").wait_for(timeout=120_000)
    assert inner.get_by_text("host_1.200.pt.trace.json").first.is_visible()
    tab.locator("select[name=run]").select_option("second")
    tab.locator("select[name=worker]").select_option("bad")
    tab.get_by_text("not a trace", exact=False).wait_for(timeout=60_000)

    assert faults == []
    page.close()
