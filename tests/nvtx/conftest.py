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
def recorder() -> Recorder:
    """Return a recorder, with the annotation on; when the test ends all ranges are closed."""
    from pyprof2.nvtx.annotation import start
    from pyprof2.nvtx.options import Options
    from tests.nvtx.recorder import Recorder

    recorder = Recorder()
    start(Options(), recorder.sink())
    return recorder
