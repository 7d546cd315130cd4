"""Replace a function of PyTorch or Python by one that calls it, until that is taken back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyprof2.nvtx.internals import hide_frame

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack


def replace(owner: Any, name: str, around: Callable[..., Any], undo: ExitStack) -> None:
    """Replace a function by `around`, which gets it as its first argument."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        try:
            return around(original, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def restore() -> None:
        # Somebody may have wrapped ours in the meantime; then it has to stay, and does nothing.
        if getattr(owner, name) is replacement:
            setattr(owner, name, original)

    setattr(owner, name, replacement)
    undo.callback(restore)
