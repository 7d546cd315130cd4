"""Run the notebook of the documentation, and write it as a page.

It is run from the start in a folder of its own, by the kernel of Jupyter, so that its outputs are
what its code gives. Only text is kept of them. Its prose is Markdown with headings, lists, code and
links to pages, nothing else: so much becomes reStructuredText here.
"""

from __future__ import annotations

import copy
import os
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

ROOT: Final = Path(__file__).resolve().parent.parent
SECONDS: Final = 300
_LINES: Final = {1: "=", 2: "-", 3: "~"}
"""The character below a heading of each level."""


def executed(text: str) -> str:
    """Return a notebook with the outputs that its cells give now.

    Args:
        text: the notebook.

    Raises:
        CellExecutionError: a cell fails.
    """
    notebook = nbformat.reads(text, as_version=4)
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}", "COLUMNS": "100",
        "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=SECONDS, record_timing=False,
            resources={"metadata": {"path": folder}},
        )  # fmt: skip
        client.execute(env=environment)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _text_of(output))]
    notebook.metadata = nbformat.from_dict({"kernelspec": _KERNEL, "language_info": _LANGUAGE})
    return str(nbformat.writes(notebook, indent=1)) + "\n"


_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}
_LANGUAGE: Final = {"name": "python"}


def _text_of(output: Any) -> Any:
    """Return an output as text alone; None where it has none that is for a reader."""
    kept = copy.deepcopy(output)
    if kept.output_type == "stream":
        return kept if kept.name == "stdout" else None
    if "data" in kept:
        kept.data = {"text/plain": kept.data["text/plain"]}
    return kept


def page(text: str) -> str:
    """Return a notebook as reStructuredText."""
    parts: list[str] = []
    for cell in nbformat.reads(text, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(_prose(cell.source))
            continue
        language = "console" if cell.source.startswith("!") else "python"
        parts.append(f".. code-block:: {language}\n\n{textwrap.indent(cell.source, '   ')}")
        texts = [each.get("text") or each["data"]["text/plain"] + "\n" for each in cell.outputs]
        lines = [line.rstrip() for line in "".join(texts).rstrip().splitlines()]
        if lines:
            shown = textwrap.indent("\n".join(lines), "   ")
            parts.append(f".. code-block:: text\n\n{shown}")
    return "\n\n".join(parts)


def _prose(markdown: str) -> str:
    lines = []
    for line in markdown.splitlines():
        heading = re.fullmatch(r"(#{1,3}) (.+)", line)
        text = re.sub(r"`([^`]+)`", r"``\1``", heading[2] if heading else line)
        text = re.sub(r"\[([^\]]+)\]\(([\w-]+)\.rst\)", r":doc:`\1 <\2>`", text)
        lines += [text, _LINES[len(heading[1])] * len(text)] if heading else [text]
    return "\n".join(lines)
