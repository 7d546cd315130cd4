"""`python -m pyprof2.parse TRACE`, where PyProf had it; imported, it is `pyprof2.parse` itself."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from pyprof2.__main__ import run

    sys.exit(run("parse"))

from pyprof2.api.run import parse

# Python makes what it imports an attribute of the package, where the function is.
sys.modules[__name__] = parse  # type: ignore[assignment]
