"""Libraries without what takes long to import and is not needed, or not yet.

Only the command line does this: in a program of others these libraries are as they are.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOT_NEEDED: Final = (
    "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs", "pyarrow._s3fs", "pyarrow.dataset",
)  # fmt: skip
"""Arrow looks for these when it is imported, and can do without: clients of storage far away, which
we reach by others, and folders of files as one table."""
_SETTINGS: Final = {
    # Arrow's own allocator keeps tens of megabytes that were freed, and has new ones cleared one by
    # one; and Arrow itself takes memory from there whatever pool a program sets later.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # NumPy starts threads for products of matrices, which spin a while, and there are none here.
    "OPENBLAS_NUM_THREADS": "1",
}
"""Arrow and NumPy read these from the environment when they are imported."""


_GC_OBJECTS: Final = 100_000
"""After so many new objects the garbage collector looks at them: arrays and short lists, which are
made by the thousand, are in no cycle of references."""


class _Without:
    """Finds no module of some names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def find_spec(self, fullname: str, *_: object) -> None:
        """Refuse the module, and leave all else to other finders."""
        if fullname in self.names:
            raise ModuleNotFoundError(fullname)


@contextlib.contextmanager
def _without(*names: str) -> Iterator[None]:
    finder = _Without(*names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def _stand_in(name: str, **values: object) -> Iterator[None]:
    """Have a module that is not imported yet be one that has these values alone."""
    module = ModuleType(name)
    vars(module).update(values)
    with contextlib.ExitStack() as stack:
        if name not in sys.modules:
            sys.modules[name] = module
            stack.callback(sys.modules.pop, name)
        yield


def import_arrow(*, also_in_children: bool = False) -> None:
    """Import NumPy and Arrow so that they take memory as `pyprof2.pipeline.allocation` says.

    Arrow writes texts of help for each of its functions, whose options it finds in other texts:
    half of the time of that import, for what nobody reads here.

    Args:
        also_in_children: whether the processes that we start do the same; a user's program is none.
    """
    gc.set_threshold(_GC_OBJECTS)
    # As Python ends, it looks for garbage among all that the libraries hold: a tenth of a second.
    atexit.register(gc.freeze)
    own = {name: _SETTINGS[name] for name in _SETTINGS.keys() - os.environ.keys()}
    os.environ.update(own)
    is_first = "pyarrow" not in sys.modules
    from pyprof2.pipeline.allocation import give_memory_back

    give_memory_back()
    with (
        _stand_in("pyarrow.vendored.docscrape", NumpyDocString=lambda _: {"Parameters": ()}),
        _without(*_NOT_NEEDED),
    ):
        import pyarrow.acero
        import pyarrow.compute
        import pyarrow.parquet
    if not is_first:  # an earlier command of this process may have deferred pandas
        pyarrow.table({}).to_pandas()
    for name in () if also_in_children else own:
        del os.environ[name]


def defer_pandas() -> None:
    """Have Arrow import pandas for the first DataFrame, not for the first array.

    It looks for pandas once, to know its objects among the values of an array, which costs 0.3 s
    and 30 MB. What is not there at that time, it imports when a table becomes a DataFrame. Until
    then an array cannot be made of a `Series`: only commands that have none do this. For intervals
    of months it also looks for dateutil, as pandas does itself.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with _without("pandas", "dateutil"):
        pa.array(())


def import_tabulate() -> None:
    """Import tabulate for tables, without what it never asks there: two thirds of its time.

    These are the widths of characters, which `cells` knows itself, and its own version, for which
    Python reads mails.
    """
    with (
        _stand_in("importlib.metadata", version=LookupError, PackageNotFoundError=LookupError),
        _without("wcwidth"),
    ):
        import tabulate  # noqa: F401
