"""Build the compiled scanner, where there is a compiler; without one all works, more slowly.

The metadata is in setup.cfg. With PYPROF2_PURE=1 nothing is compiled: the wheel is for any machine.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

PURE = os.environ.get("PYPROF2_PURE", "") not in ("", "0")
SCANNER = Extension(
    "pyprof2.parsers._scan", ["parsers/_scan.c"], optional=True, py_limited_api=True
)

if __name__ == "__main__":
    setup(
        ext_modules=[] if PURE else [SCANNER],
        options={} if PURE else {"bdist_wheel": {"py_limited_api": "cp311"}},
    )
