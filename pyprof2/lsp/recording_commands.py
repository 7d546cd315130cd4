"""Commands that record the program anew: after consent, with progress, and to be cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lsprotocol import types as lsp

from pyprof2.lsp import kept, shown
from pyprof2.lsp.app import Answer, Server, answers
from pyprof2.lsp.commands import PATIENCE, analyse_all, places, said
from pyprof2.lsp.profiling import ProfilingError, shown_command
from pyprof2.lsp.settings import ASK, OFF

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyprof2.lsp.files import File

_ALLOW: Final = "Allow"
_DENY: Final = "Do not run"

RECORDING_COMMANDS: Final[dict[str, Callable[..., Any]]] = {}


@answers(RECORDING_COMMANDS, "pyprof2.profile")
async def _profile_now(ls: Server, *_: Any) -> Answer:
    return await _profile(ls)


@answers(RECORDING_COMMANDS, "pyprof2.cancelProfile")
async def _cancel(ls: Server, *_: Any) -> Answer:
    ls.profiling.cancel()
    return said(ls, "cancelled", ok=True, quiet=True)


@answers(RECORDING_COMMANDS, "pyprof2.revokeConsent")
async def _revoke(ls: Server, *_: Any) -> Answer:
    ls.session.kept.put(kept.CONSENT, None)
    return said(ls, "nothing of this workspace runs until it is allowed again", ok=True)


async def on_save(ls: Server, uri: str) -> None:
    """Record anew after a file of the workspace was saved, if that is wanted."""
    file, settings = ls.file(uri), ls.session.settings
    if settings.onSave == OFF or file is None or file.language not in ("python", "yaml"):
        return
    if ls.profiling.is_running or not settings.capture:
        return
    if (
        settings.onSave == ASK
        and await ls.choose("record anew?", ["Record", "Not now"]) != "Record"
    ):
        return
    await _profile(ls)


async def _consent(ls: Server, root: str, capture: tuple[str, ...], sizes: Sequence[int]) -> bool:
    """Return whether the user allowed this very command, in this workspace."""
    command = shown_command(ls.session.settings.python, capture)
    if ls.session.kept.get(kept.CONSENT) == [root, command]:
        return True
    at = f" with batch sizes of {', '.join(map(str, sizes))}, for the dials" if sizes else ""
    text = f"may this run in {root}{at}, now and whenever you ask for it here? {command}"
    if await ls.choose(text, [_ALLOW, _DENY]) != _ALLOW:
        return False
    ls.session.kept.put(kept.CONSENT, [root, command])
    return True


async def _refusal(ls: Server, sizes: Sequence[int] = ()) -> str:
    """Return why nothing may run now; empty: it may."""
    settings, roots = ls.session.settings, ls.session.roots
    if settings.restricted or not roots:
        return "nothing runs in a workspace that is not trusted"
    capture = capture_of(ls)
    if not capture:
        return "say what to record: setting capture, the script and its arguments"
    if ls.profiling.is_running:
        return "it is being recorded already"
    allowed = await _consent(ls, roots[0], capture, sizes)
    return "" if allowed else "not allowed: nothing was run"


def capture_of(ls: Server) -> tuple[str, ...]:
    """Return the command to record: of the setting, else the entry point; empty: none."""
    session = ls.session
    if session.settings.capture:
        return session.settings.capture
    if not session.roots or (entry := session.entry_file()) is None:
        return ()
    root = Path(session.roots[0])
    return "--entry", str(entry.relative_to(root) if entry.is_relative_to(root) else entry)


async def _profile(ls: Server) -> Answer:
    """Record the program anew, after consent; the last good numbers stay meanwhile."""
    if refusal := await _refusal(ls):
        return said(ls, refusal, ok=False)
    batch = await _saved_batch(ls)
    progress = _ProgressBar(ls)
    await progress.begin()
    try:
        store = await _record(ls, capture_of(ls), ls.session.kept.recordings, progress.report)
    except ProfilingError as error:
        if ls.profiling.is_cancelled:
            return said(ls, "cancelled", ok=False)
        failure = ls.failure = error.failure
        await ls.refresh()
        place = f"{failure.path}:{failure.line + 1}: " if failure.path else ""
        answer = said(ls, f"not recorded: {place}{failure.text}", ok=False)
        return answer | ({"path": failure.path, "line": failure.line} if failure.path else {})
    except OSError as error:
        return said(ls, f"{error.filename}: {error.strerror}", ok=False)
    finally:
        progress.end()
    ls.failure = None
    _remember_batch(ls, store, batch)
    await ls.session.load()
    return said(ls, ls.session.title(), ok=True, quiet=True)


async def _record(
    ls: Server, capture: tuple[str, ...], folder: Path, report: Callable[[str], None],
    label: str = "",
) -> Path:  # fmt: skip
    python, root = ls.session.settings.python, ls.session.roots[0]
    return await ls.profiling.record(python, capture, root, folder, report, label)


async def record_sizes(ls: Server) -> str:
    """Record an entry point at more batch sizes, after consent, so that the dials have a model.

    What is shown stays: they are kept apart.

    Returns:
        Why the dials still have none; empty: they have.
    """
    await ls.session.loaded(PATIENCE)
    lacks = ls.dials.lacks()
    if not lacks or "--entry" not in capture_of(ls):
        return lacks
    if ls.session.batch()[0] is None and not (found := await _profile(ls))["ok"]:
        return str(found["text"])
    default = ls.session.batch()[0]
    if default is None:
        return lacks
    from pyprof2.capture.sweep import sizes_around

    sizes = [size for size in sizes_around(default) if size not in ls.session.by_batch()]
    if refusal := await _refusal(ls, sizes):
        return refusal
    progress = _ProgressBar(ls)
    await progress.begin()
    try:
        failed = await _record_each(ls, sizes, progress)
    finally:
        progress.end()
    ls.dials.changed()
    lacks = ls.dials.lacks()
    return "cancelled" if ls.profiling.is_cancelled else lacks and "; ".join([lacks, *failed])


async def _record_each(ls: Server, sizes: Sequence[int], progress: _ProgressBar) -> list[str]:
    """Record at each batch size, and return why some could not be, of too little memory say."""
    failed = []
    capture = [word for word in capture_of(ls) if not word.startswith("--batch=")]
    if "--batch" in capture:
        at = capture.index("--batch")
        del capture[at : at + 2]
    for number, size in enumerate(sizes, start=1):
        progress.about = f"batch size {size} ({number} of {len(sizes)}): "
        asked = (*capture, "--batch", str(size))
        try:
            store = await _record(ls, asked, ls.session.kept.sizes, progress.report, f"-b{size}")
        except ProfilingError as error:
            if ls.profiling.is_cancelled:
                break
            failed.append(f"batch size {size}: {error.failure.text}")
        except OSError as error:
            return [*failed, f"{error.filename}: {error.strerror}"]
        else:
            _remember_batch(ls, store, size)
    return failed


async def _saved_batch(ls: Server) -> int | None:
    """Return the batch size at the place that was chosen, if that file is saved."""
    await analyse_all(ls)
    wanted = ls.session.kept.get(kept.CANDIDATE)
    there = list(places(ls))
    possible = [p for p in there if p[2] == wanted] or [p for p in there if p[1].value]
    if len(possible) != 1:
        return None
    file, candidate, _ = possible[0]
    return candidate.value if _is_saved(file) else None


def _is_saved(file: File) -> bool:
    try:
        return Path(file.path or "").read_bytes().decode() == file.document.source
    except (OSError, ValueError):
        return False


def _remember_batch(ls: Server, store: Path, batch: int | None) -> None:
    known = {
        path: size
        for path, size in (ls.session.kept.get(kept.BATCHES) or {}).items()
        if Path(path).is_dir()
    }
    if batch is not None:
        known[str(store)] = batch
    ls.session.kept.put(kept.BATCHES, known)


class _ProgressBar:
    """A bar in the editor, with which the user can cancel; nothing where it has none.

    Attributes:
        about: what stands before each text.
    """

    def __init__(self, ls: Server) -> None:
        window = ls.client_capabilities.window
        self._ls, self._token = ls, "pyprof2.profile"
        self.about = ""
        self._is_shown = bool(window and window.work_done_progress)

    async def begin(self) -> None:
        """Show it."""
        if not self._is_shown:
            return
        bar = self._ls.work_done_progress
        bar.tokens.pop(self._token, None)
        await bar.create_async(self._token)
        bar.begin(self._token, lsp.WorkDoneProgressBegin("pyprof2: recording", cancellable=True))
        bar.tokens[self._token].add_done_callback(self._done)

    def _done(self, future: Any) -> None:
        if future.cancelled():
            self._ls.profiling.cancel()

    def report(self, text: str) -> None:
        """Show the last line that the program wrote."""
        if self._is_shown:
            found = lsp.WorkDoneProgressReport(message=(self.about + shown.plain(text))[:120])
            self._ls.work_done_progress.report(self._token, found)

    def end(self) -> None:
        """Take it away."""
        if self._is_shown:
            text = "cancelled" if self._ls.profiling.is_cancelled else "done"
            self._ls.work_done_progress.end(self._token, lsp.WorkDoneProgressEnd(message=text))
