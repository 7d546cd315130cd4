"""A process that runs a command, and ends it with all that it started when its stdin ends.

`python -m pyprof2.lsp.child COMMAND …`, as the leader of a group of its own: a server that is
killed leaves nothing running.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from pyprof2.lsp.worker import end_group


def main() -> int:
    """Run the command of the arguments, and return its exit code."""
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL) as process:  # noqa: S603 - asked
        threading.Thread(target=_end_with_stdin, args=[process.pid], daemon=True).start()
        code = process.wait()
    # The command may have left others in the background.
    if _leads_a_group():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpid(), signal.SIGTERM)
    return code if code >= 0 else 128 - code


def _leads_a_group() -> bool:
    return hasattr(os, "getpgrp") and os.getpgrp() == os.getpid()


def _end_with_stdin(pid: int) -> None:
    # Not by sys.stdin, whose lock Python wants when it ends.
    while os.read(0, 1 << 12):
        pass
    end_group(os.getpid() if _leads_a_group() else pid)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
