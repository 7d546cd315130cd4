"""Variables of the environment that a recording carries are in nothing that is made of it."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from tests import kineto_events as k

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLANTED = "s3cret-of-mine"
NAMES = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "api_key", "GOOGLE_CREDENTIALS")
ENVIRONMENT = dict.fromkeys(NAMES, PLANTED)


def _kineto(folder: Path) -> Path:
    """Return a trace with variables at every place that is not our own."""
    events: list[Any] = [
        k.op("aten::mm", 10, 20, **ENVIRONMENT),
        k.launch(12, 1),
        k.kernel(15, 5, 1),
        {
            "ph": "M",
            "name": "process_labels",
            "pid": k.PID,
            "args": {"labels": f"api_key={PLANTED}"},
        },
        k.annotation("mine", 5, 40, args=ENVIRONMENT),
    ]
    metadata = {"system": {"env": ENVIRONMENT}, "cmdline": [f"--token={PLANTED}"]}
    around = {"metadata": metadata, "env": ENVIRONMENT, **ENVIRONMENT}
    return k.trace(folder / "net.json", *events, **around)


def _unfinished(folder: Path) -> Path:
    """Return a trace that ends in the middle of a variable."""
    text = k.json_text(k.op("aten::mm", 10, 20)).rstrip().removesuffix(b"}")
    path = folder / "cut.json"
    path.write_bytes(text + f', "env": {{"HF_TOKEN": "{PLANTED}" oops'.encode())
    return path


@pytest.mark.parametrize("make", [_kineto, _unfinished], ids=["kineto", "damaged"])
def test_no_secret_leaves_a_recording(
    make: Callable[[Path], Path], tmp_path: Path, invoke: Callable[..., Any]
) -> None:
    trace, made = make(tmp_path), tmp_path / "made"
    made.mkdir()
    store = made / "net.pyprof2"
    commands: list[list[Any]] = [
        ["parse", trace, "-o", store],
        ["check", trace],
        ["prof", store, "--by", "kernel", "--format", "json"],
        ["explain", store, "op:0"],
        ["report", store, "-o", made / "net.html"],
        ["export", "--chrome", store, "-o", made / "net.json"],
        ["export", "--perfetto", store, "-o", made / "net.pftrace"],
    ]

    said = [invoke(*command) for command in commands]

    assert [result.code for result in said] == [0] * len(commands), said
    assert not any(PLANTED in result.out + result.err for result in said)
    for path in made.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert PLANTED.encode() not in content, path
        assert not content.startswith(b"\x1f\x8b") or PLANTED.encode() not in gzip.decompress(
            content
        )
