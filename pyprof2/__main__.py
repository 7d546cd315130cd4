"""Run the command line as `python -m pyprof2`."""

from __future__ import annotations

import os
import sys


def run(*command: str) -> int:
    """Run the command line with `command` before the words of this process; return its code."""
    # Python looks for modules in the current folder first, for `-m`. We are found already, and
    # what lies there has no business here.
    if sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109 -- as Python spells it
        del sys.path[0]

    from pyprof2.cli import main

    return main([*command, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(run())
