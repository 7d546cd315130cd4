"""Run the command line as `python -m pyprof2`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Python looks for modules in the current folder first, for `-m`. We are found already, and
    # what lies there has no business here.
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 -- as Python spells it
        del sys.path[0]

    from pyprof2.cli import main

    sys.exit(main())
