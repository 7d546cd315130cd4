"""Commands of the dials: the page in a browser, and for panels of editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types as lsp

from pyprof2.lsp.app import Answer, Server  # noqa: TC001 - pygls reads the annotations
from pyprof2.lsp.commands import said
from pyprof2.lsp.recording_commands import record_sizes

if TYPE_CHECKING:
    from collections.abc import Callable


async def _open(ls: Server, *given: Any) -> Answer:
    """Open the page in a browser, unless `{"open": false}` is given.

    What the dials need of an entry point is recorded first, if that is allowed.
    """
    if why := await record_sizes(ls):
        return said(ls, why, ok=False)
    try:
        address = ls.dials.serve()
    except OSError as error:
        return said(ls, f"cannot listen on 127.0.0.1: {error.strerror}", ok=False)
    wanted = given[0] if given and isinstance(given[0], dict) else {}
    if wanted.get("open", True) and not await _shown(ls, address):
        # Only the user sees it: the word in it is theirs.
        ls.tell(f"open {address}")
    return {"ok": True, "text": "", "url": address}


async def _shown(ls: Server, address: str) -> bool:
    """Ask the editor to open a browser, and return whether it did."""
    window = ls.client_capabilities.window
    if window is None or window.show_document is None or not window.show_document.support:
        return False
    found = await ls.window_show_document_async(lsp.ShowDocumentParams(address, external=True))
    return found.success


async def _page(ls: Server, *_: Any) -> Answer:
    from pyprof2.reports.dials import PROGRAM
    from pyprof2.reports.page.html import page

    why = await record_sizes(ls)
    return {"ok": not why, "text": why} | ({} if why else {"html": "".join(page("", PROGRAM))})


async def _ask(ls: Server, *given: Any) -> Answer:
    return await ls.dials.ask(given[0] if given else None)


DIALS_COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "pyprof2.dials": _open,
    "pyprof2.dialsPage": _page,
    "pyprof2.dialsAsk": _ask,
}
