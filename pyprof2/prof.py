"""`python -m pyprof2.prof TRACE`, where PyProf had it: the command `pyprof2 prof`."""

from __future__ import annotations

import sys

from pyprof2.__main__ import run

if __name__ == "__main__":
    sys.exit(run("prof"))
