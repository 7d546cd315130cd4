"""Consent and choices of a workspace, remembered outside of it.

A workspace can be anybody's, so nothing in it may say that its code can run. It stands in the
user's own folder (`XDG_STATE_HOME`, else `~/.local/state`), a file for each workspace.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from pyprof2.own_files import is_own, make_own_folder, open_own

CONSENT: Final = "consent"
"""The command that the user allowed to run."""
CANDIDATE: Final = "candidate"
"""Where the batch size stands."""
BATCHES: Final = "batches"
"""By recording that the server made: the batch size that stood in the code."""


def state_folder() -> Path:
    """Return the folder of choices."""
    named = os.environ.get("XDG_STATE_HOME", "")
    base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    return base / "pyprof2"


class Choices:
    """The consent and choices of one workspace; each change is written at once."""

    def __init__(self, workspace: str) -> None:
        key = hashlib.sha256(workspace.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self.folder = state_folder() / "workspaces" / key
        self._file = self.folder / "kept.json"
        self._workspace = workspace

    @property
    def recordings(self) -> Path:
        """The folder of the recordings that the server makes of the workspace."""
        return self.folder / "recordings"

    @property
    def sizes(self) -> Path:
        """The folder of those at other batch sizes than the code has, for the dials."""
        return self.folder / "sizes"

    def get(self, name: str) -> Any:
        """Return the value under a name; None: there is none."""
        if not is_own(self.folder, alone=True):
            return None  # whoever made it does not say what may run
        try:
            with open_own(self._file) as file:
                content = json.loads(file.read())
        except (OSError, ValueError):
            return None
        # Two workspaces of one hash do not share a consent.
        if not isinstance(content, dict) or content.get("workspace") != self._workspace:
            return None
        return content.get(name)

    def put(self, name: str, value: Any) -> None:
        """Remember a value; None forgets it.

        Raises:
            OSError: it cannot be written, or its folder is another user's.
        """
        make_own_folder(self.folder)
        names = (CONSENT, CANDIDATE, BATCHES)
        content = {each: self.get(each) for each in names} | {name: value}
        content["workspace"] = self._workspace
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, delete=False, encoding="utf-8"
        ) as file:
            json.dump(content, file)
        Path(file.name).replace(self._file)
