"""Build what is compiled, where there is a compiler; without one all works, more slowly.

The metadata is in setup.cfg. With PYPROF2_PURE=1 nothing is compiled: the wheel is for any machine.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

PURE = os.environ.get("PYPROF2_PURE", "") not in ("", "0")
COMPILED = [
    Extension(
        f"pyprof2.{package}.{name}",
        [f"{folder}/{name}.c"],
        depends=["parsers/_dictionary.h"],
        optional=True,
        py_limited_api=True,
    )
    for package, folder, name in (
        ("analysis", "analysis", "_nest"),
        ("parsers", "parsers", "_scan"),
        ("parsers", "parsers", "_snapshot_events"),
        ("reports.perfetto", "pyprof2/reports/perfetto", "_packets"),
    )
]

if __name__ == "__main__":
    setup(
        ext_modules=[] if PURE else COMPILED,
        options={} if PURE else {"bdist_wheel": {"py_limited_api": "cp311"}},
    )
