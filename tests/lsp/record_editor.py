"""Record the `initialize` of an editor, for `tests/lsp/editors`: put this in the server's place.

    PYPROF2_RECORD=out.json EDITOR... with the server `python -m tests.lsp.record_editor`

It writes down what the editor can do and who it is, and then is the server.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO, Any


def first_message(stream: IO[bytes]) -> tuple[bytes, Any]:
    """Return the first message, as it came and read."""
    header = b""
    while not header.endswith(b"\r\n\r\n"):
        header += stream.read(1)
    length = next(
        line for line in header.splitlines() if line.lower().startswith(b"content-length")
    )
    body = stream.read(int(length.partition(b":")[2]))
    return header + body, json.loads(body)


def main() -> None:
    """Record, and start the server with what was read put back before the rest."""
    stdin = os.fdopen(0, "rb", buffering=0, closefd=False)
    raw, message = first_message(stdin)
    params = message["params"]
    found = {name: params[name] for name in ("capabilities", "clientInfo")}
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False)
    Path(os.environ["PYPROF2_RECORD"]).write_text(text + "\n", encoding="utf-8")
    _continue(raw)


def _continue(raw: bytes) -> None:
    """Be the server, which reads what was read already first; another process hands it on."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        while raw:
            os.write(writing, raw)
            raw = os.read(0, 1 << 16)
        os._exit(0)
    os.close(writing)
    os.dup2(reading, 0)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "pyprof2", "lsp"])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
