"""Regular expressions for texts of strangers: their time grows with the text, and no faster."""

from __future__ import annotations

import re
from typing import Final

SPAN: Final = 512
"""Characters that a repetition in a bounded pattern covers at most."""

_QUANTIFIER: Final = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z))|([*+])", re.DOTALL)


def bounded(words: str, flags: int = 0) -> re.Pattern[str]:
    r"""Compile a pattern with each `*` and `+` limited to `SPAN` characters.

    A search for `a\w*b` goes through the rest of the text at each `a`; bounded, it does not.
    """
    limited = {"*": f"{{0,{SPAN}}}", "+": f"{{1,{SPAN}}}"}
    return re.compile(_QUANTIFIER.sub(lambda found: found[1] or limited[found[2]], words), flags)
