"""Run the scenarios with NVTX, and write what the oracle says of every op; run under nsys.

Usage: record_scenarios.py LOG. The log has a JSON array for each range of an op, in the order in
which a thread pushed them: the thread's id, the text, the payload, and what is expected.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof2.markers import parse_marker
from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.options import Options
from pyprof2.nvtx.sinks import Sink, nvtx_sink
from tests.nvtx.oracle import Oracle
from tests.nvtx.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator


def watched(sink: Sink, oracle: Oracle, log: list[Any]) -> Sink:
    """Return a sink that does the same, and writes a log."""
    local, original = threading.local(), sink.copied
    assert original is not None

    def push(attributes: Any, domain: Any) -> None:
        text = getattr(local, "copied", None) or attributes.message.string
        marker = parse_marker(text)
        if marker is not None and marker.kind == "op":
            entry = (text, attributes.payload, oracle.expect())
            log.append((threading.get_native_id(), *entry))
        sink.push(attributes, domain)

    @contextmanager
    def copied(attributes: Any, text: str) -> Iterator[None]:
        local.copied = text
        try:
            with original(attributes, text):
                yield
        finally:
            local.copied = None

    return replace(sink, push=push, copied=copied)


def main() -> None:
    """Run all scenarios one after the other."""
    warnings.simplefilter("ignore")
    log: list[Any] = []
    sink = nvtx_sink()
    if sink is None:
        sys.exit("no profiler listens")
    for scenario in SCENARIOS.values():
        oracle = Oracle()
        with oracle.watching():
            start(Options(), watched(sink, oracle, log))
            scenario()
            shutdown()
    Path(sys.argv[1]).write_text("".join(json.dumps(entry) + "\n" for entry in log))


if __name__ == "__main__":
    main()
