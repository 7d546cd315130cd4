"""Run the command line as `python -m pyprof2`."""

from __future__ import annotations

import sys

from pyprof2.cli import main

if __name__ == "__main__":
    sys.exit(main())
