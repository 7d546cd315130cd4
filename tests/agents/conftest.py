"""Recordings of our own in a folder, and the official client, which starts the server."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
DEMO: Final = ROOT / "pyprof2" / "data" / "demo.json.gz"
COMPILED: Final = ROOT / "tests" / "data" / "compiled"
GPU: Final = "gpu/h200.json.gz"


class Said(NamedTuple):
    """An answer: its text, and what the text is as JSON; or an error, which is text alone."""

    text: str
    is_error: bool

    @property
    def answer(self) -> dict[str, Any]:
        assert not self.is_error, self.text
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def data(self) -> Any:
        return self.answer["data"]


def laid_out(folder: Path) -> Path:
    """Put a recording of a CPU, and one of a GPU with the log of its compilation, into a folder."""
    gpu = folder / "gpu"
    gpu.mkdir(parents=True)
    shutil.copy(DEMO, folder)
    shutil.copy(COMPILED / "h200.json.gz", gpu)
    log = gzip.decompress((COMPILED / "h200.log.gz").read_bytes())
    (gpu / "dedicated_log_torch_trace_0.log").write_bytes(log)
    return folder


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return laid_out(tmp_path_factory.mktemp("recordings") / "traces")


Call = tuple[str, Any]
"""A tool and its arguments, or a function that makes them of the answer before."""


def asked(folder: Path, calls: Sequence[Call], **environment: str) -> list[Said]:
    """Start the server in a process, call its tools one after another, and return the answers."""
    mcp = pytest.importorskip("mcp")
    pytest.importorskip("duckdb")

    async def talk() -> list[Said]:
        server = mcp.StdioServerParameters(
            command=sys.executable,
            args=["-m", "pyprof2", "mcp", str(folder)],
            env={"PYTHONPATH": str(ROOT)} | environment,
        )
        found: list[Said] = []
        async with mcp.Client(server) as client:
            for tool, arguments in calls:
                made = arguments(found[-1]) if callable(arguments) else arguments
                result = await client.call_tool(tool, made)
                (content,) = result.content
                found.append(Said(content.text, bool(result.is_error)))
        return found

    return asyncio.run(talk())


@pytest.fixture(scope="session")
def ask(recordings: Path) -> Callable[..., list[Said]]:
    return lambda *calls: asked(recordings, calls)
