"""What the tests of the annotation use: torch, and an annotation that records into a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="the annotation needs torch")
pytest.importorskip("nvtx", reason="the annotation needs nvtx")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.nvtx.recorder import Recorder


@pytest.fixture(autouse=True)
def _begin_and_end_without_annotation() -> Iterator[None]:
    """Make every test begin with the same random numbers and end without an annotation."""
    from pyprof2.nvtx import shutdown

    torch.manual_seed(0)
    yield
    shutdown()


@pytest.fixture
def by_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ops marked by the dispatch mode, as where there is no compiler."""
    monkeypatch.setenv("PYPROF2_OBSERVER", "0")


@pytest.fixture(params=["observer", "mode"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have ops marked in one way and in the other; return which."""
    from pyprof2.nvtx.observers import observer

    if request.param == "mode":
        monkeypatch.setenv("PYPROF2_OBSERVER", "0")
    elif observer() is None:
        pytest.skip("there is no observer here")
    return str(request.param)


@pytest.fixture
def recorder() -> Recorder:
    """Return a recorder, with the annotation on; when the test ends all ranges are closed."""
    from pyprof2.nvtx.annotation import start
    from pyprof2.nvtx.options import Options
    from tests.nvtx.recorder import Recorder

    recorder = Recorder()
    start(Options(), recorder.sink())
    return recorder
