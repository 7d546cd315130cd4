"""Write the parts of the documentation that come from the code, or say which are stale.

Usage: python -m docs.generate [--check]

A generated part stands in a page between two comments::

    .. generated: tables
    .. end generated

What it holds is named in the first one: one of the writers below, or, after a dollar sign, a
command whose real output is shown. Commands run on the recordings of `examples.py`, so that their
output is the same everywhere. With `--check` nothing is
written, and the exit code is 1 if a part is not what the code gives now.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs import notebook
from docs.examples import WIDTH, folder, output
from pyprof2.analysis.costs import registry
from pyprof2.analysis.hardware.devices import DEVICES
from pyprof2.analysis.hardware.tensor_core import RULES, RULES_VERSION
from pyprof2.analysis.summaries.advice.rules import NOISE
from pyprof2.analysis.summaries.advice.rules import RULES as ADVICE_RULES
from pyprof2.analysis.summaries.ledger import BINS
from pyprof2.analysis.summaries.line_profile import COLUMNS as LINE_COLUMNS
from pyprof2.analysis.summaries.profile_columns import (
    MEANS,
    MORE_COLUMNS,
    OF_CALLS,
    OF_MODULES,
    OF_OWNERS,
    SHARE,
    SUMMARY_COLUMNS,
)
from pyprof2.analysis.time.cause_names import CAUSES
from pyprof2.cli import build_parser
from pyprof2.parsers.formats import FORMATS
from pyprof2.problems import PROBLEMS, SKIPPED
from pyprof2.reports.batch import BATCH_COLUMNS
from pyprof2.result_tables import (
    ADVICE,
    ENERGY,
    FINDINGS,
    RESULTS,
    SERVING_DIFFERENCE,
    SERVING_KINDS,
    SERVING_PHASES,
    SERVING_STEPS,
    SPENDING,
)  # fmt: skip
from pyprof2.signatures import CATEGORIES
from pyprof2.store.queries import VIEWS
from pyprof2.tables import KERNELS, SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import ModuleType

    import pyarrow as pa

    from pyprof2.tables import Column, Table

ROOT: Final = Path(__file__).resolve().parent.parent

NOTEBOOK: Final = ROOT / "docs" / "tutorial.ipynb"

_PART: Final = re.compile(
    r"^(\.\. generated: (?P<what>[^\n]+)\n)(?P<text>.*?)(^\.\. end generated$)",
    re.MULTILINE | re.DOTALL,
)


def main() -> int:
    """Write or check every page; return the exit code."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args().check
    stale = []
    old = NOTEBOOK.read_text(encoding="utf-8")
    ran = notebook.executed(old)
    if ran != old:
        stale.append(str(NOTEBOOK.relative_to(ROOT)))
        if not check:
            NOTEBOOK.write_text(ran, encoding="utf-8")
    texts = {page: page.read_text(encoding="utf-8") for page in _pages()}
    shown = [part["what"] for text in texts.values() for part in _PART.finditer(text)]
    commands = dict.fromkeys(what.removeprefix("$ ") for what in shown if what.startswith("$ "))
    folder()  # before there are threads
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(output, commands))  # the results stay in its cache
    for page, old in texts.items():
        new = _PART.sub(_filled, old)
        if new != old:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run 'make generate'", file=sys.stderr)
        return 1
    for name in stale:
        print(f"written: {name}")
    return 0


def _pages() -> list[Path]:
    return [ROOT / "README.rst", *sorted(ROOT.glob("docs/**/*.rst"))]


def _filled(part: re.Match[str]) -> str:
    what = part["what"]
    text = _output(what.removeprefix("$ ")) if what.startswith("$ ") else _WRITERS[what]()
    return f"{part[1]}\n{text.strip()}\n\n{part[4]}"


def tables() -> str:
    """Return a section for each canonical table."""
    head = f"The schema version of these tables is {SCHEMA_VERSION}."
    return "\n\n".join([head, *(_table_section(table) for table in TABLES.values())])


def results() -> str:
    """Return a section for each table of what was found."""
    return "\n\n".join(
        _table_section(table)
        for table in (
            *RESULTS.values(),
            SERVING_STEPS,
            SERVING_PHASES,
            SERVING_KINDS,
            SERVING_DIFFERENCE,
            ENERGY,
            SPENDING,
            FINDINGS,
        )
    )


def _table_section(table: Table) -> str:
    lines = [f".. _table-{table.name}:", "", *_heading(f"``{table.name}``", "-")]
    return "\n".join([*lines, "", table.meaning, "", *_columns(table.columns)])


def views() -> str:
    """Return a section for each view of SQL, with its columns that table `kernels` lacks."""
    parts = []
    for view in VIEWS.values():
        own = [column for column in view.table.columns if column not in KERNELS.columns]
        more = "The columns of :ref:`kernels <table-kernels>`, and:"
        lines = [*_heading(f"``{view.name}``", "-"), "", view.table.meaning, "", more, ""]
        parts.append("\n".join([*lines, *_columns(own)]))
    return "\n\n".join(parts)


def _columns(columns: Iterable[Column]) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 14 10 54", ""]
    lines += _row("column", "type", "unit", "meaning")
    for column in columns:
        unit = column.unit or " "
        lines += _row(f"`{column.name}`", _type_text(column), unit, column.meaning)
    return lines


def sums() -> str:
    """Return the columns that follow the keys of an axis, and those made by request."""
    asked = {
        "Of kernels, by request:": MEANS,
        "Along ``op``, ``layer`` or ``source`` alone, where kernels have several of them; the "
        "last one by request:": (*OF_OWNERS, SHARE),
        "Of op calls, by request, along what these have too:": OF_CALLS,
        "Of calls of modules, by request, along ``layer`` alone:": OF_MODULES,
    }
    parts = ["\n".join(_columns((*SUMMARY_COLUMNS, *MORE_COLUMNS)))]
    parts += ["\n".join([title, "", *_columns(columns)]) for title, columns in asked.items()]
    return "\n\n".join(parts)


def batch_columns() -> str:
    """Return the columns of the batch model."""
    return "\n".join(_columns(BATCH_COLUMNS))


def tutorial() -> str:
    """Return the notebook, which was run before, as a page."""
    return notebook.page(NOTEBOOK.read_text(encoding="utf-8"))


def lines() -> str:
    """Return the columns of what lines cost."""
    return "\n".join(_columns(LINE_COLUMNS))


def bins() -> str:
    """Return the bins of the ledger and what each holds."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 80", ""]
    lines += _row("bin", "holds")
    for name, meaning in BINS.items():
        lines += _row(f"`{name}`", meaning)
    return "\n".join(lines)


def causes() -> str:
    """Return the causes of idle time by group, and what each means."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 22 20 58", ""]
    lines += _row("group", "cause", "meaning")
    for cause in CAUSES:
        lines += _row(cause.group, f"`{cause.name}`", cause.meaning)
    return "\n".join(lines)


def advice() -> str:
    """Return a section for each rule: when it fires, why it matters, and what to do."""
    sections = []
    for rule in ADVICE_RULES:
        lines = [f".. _advice-{rule.slug}:", "", *_heading(f"``{rule.slug}``: {rule.title}", "~")]
        lines += ["", _escaped_doc(rule.find), "", f":Fires: {_field(rule.fires)}"]
        lines += [f":Remedy: {_field(rule.remedy)}"]
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def _field(text: str) -> str:
    """Return words as the body of a field, whose further lines are indented."""
    lines = textwrap.wrap(f"{_escaped(text)}.", 90, break_long_words=False, break_on_hyphens=False)
    return "\n   ".join(lines)


def findings() -> str:
    """Return the columns of findings."""
    return "\n".join([ADVICE.meaning, "", *_columns(ADVICE.columns)])


def noise() -> str:
    """Return what is not reported, and why."""
    return "\n\n".join(f"{what}\n   {_field(why)}" for what, why in NOISE)


def problems() -> str:
    """Return what is counted while a recording is read, and what to do about each."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 45 35", ""]
    lines += _row("slug", "what ``check`` says", "advice")
    for problem in PROBLEMS.values():
        text = _escaped(problem.text.replace("{}", "…"))
        lines += _row(f"``{problem.slug}``", text, _escaped(problem.advice) or "as below")
    lines += ["", *(f"- {known.files}: {known.advice.problem}." for known in FORMATS)]
    return "\n".join(lines)


def skipped() -> str:
    """Return what is not read, and whether a number may lack it."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 80", ""]
    lines += _row("slug", "what ``check`` says was not read")
    for kind in SKIPPED.values():
        lines += _row(f"``{kind.slug}``", _escaped(kind.text.replace("{}", "…")))
    return "\n".join(lines)


def _row(*cells: str) -> list[str]:
    return [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(cells)]


def _type_text(column: Column) -> str:
    return _arrow_name(column.type) + ("" if column.nullable else ", never null")


def _arrow_name(kind: pa.DataType) -> str:
    return "text" if str(kind).startswith(("dictionary", "string")) else str(kind)


def commands() -> str:
    """Return a section for each command, with its arguments and options."""
    parser = build_parser()
    common = {word for action in parser._actions for word in action.option_strings}
    sections = []
    for name, (command, summary) in _subcommands(parser).items():
        lines = [f".. _command-{name}:", "", *_heading(f"``pyprof2 {name}``", "-"), ""]
        lines += [f".. program:: pyprof2 {name}", "", _usage(name, command), ""]
        lines += [_sentence(command.description or summary), "", *_examples(command)]
        lines += _options(command, common)
        sections.append("\n".join(lines))
    lines = [*_heading("Every command", "-"), "", ".. program:: pyprof2", "", *_options(parser)]
    return "\n\n".join([*sections, "\n".join(lines)])


def _subcommands(
    parser: argparse.ArgumentParser,
) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return each command's parser and its line in the list of commands."""
    found = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {item.dest: item.help or "" for item in action._choices_actions}
            # An old name has no line there.
            found = {name: (action.choices[name], line) for name, line in summaries.items()}
    return found


def _usage(name: str, command: argparse.ArgumentParser) -> str:
    """Return the call in one line; argparse's own differs between versions of Python."""
    formatter = command._get_formatter()
    words = [
        formatter._format_args(action, formatter._get_default_metavar_for_positional(action))
        for action in command._actions
        if not action.option_strings
    ]
    call = " ".join(["pyprof2", name, "[OPTIONS]", *words])
    return f".. code-block:: text\n\n   {call}"


def _examples(command: argparse.ArgumentParser) -> list[str]:
    """Return the examples that its help ends with."""
    title, _, examples = (command.epilog or "").partition("\n")
    if not examples:
        return []
    block = textwrap.indent(textwrap.dedent(examples), "   ")
    return [f"{_sentence(title).removesuffix(':.')}::", "", block, ""]


def _options(parser: argparse.ArgumentParser, common: Collection[str] = ()) -> Iterator[str]:
    """Give the arguments and options, without those that are common to all commands."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        if set(action.option_strings) & set(common):
            continue
        if action.option_strings:
            value = ""
            if action.nargs != 0:
                default = formatter._get_default_metavar_for_optional(action)
                value = f" {formatter._format_args(action, default)}"
            yield f".. option:: {', '.join(word + value for word in action.option_strings)}"
        else:
            default = formatter._get_default_metavar_for_positional(action)
            yield f".. option:: {formatter._format_args(action, default)}"
        yield ""
        if action.help:
            yield textwrap.indent(_sentence(formatter._expand_help(action)), "   ")
            yield ""


def _sentence(text: str) -> str:
    """Return help text as a sentence; what reStructuredText takes as markup is escaped."""
    text = _escaped(text.strip())
    text = text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
    return textwrap.fill(text, 92, break_long_words=False, break_on_hyphens=False)


def _escaped(text: str) -> str:
    """Return text in which only backquotes are markup."""
    parts = re.split(r"(`+[^`]+`+)", text)
    parts[::2] = [
        re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", re.sub(r"([*|\\])", r"\\\1", part))
        for part in parts[::2]
    ]
    return "".join(parts)


def costs() -> str:
    """Return, by category, what each formula says of itself, with the ops that it covers."""
    sections = []
    shown: set[ModuleType | None] = set()
    for category in CATEGORIES:
        formulas = _formulas(category)
        if formulas:
            sections.append("\n".join(_heading(category, "-")))
            modules = dict.fromkeys(map(inspect.getmodule, formulas))
            sections += [_escaped_doc(module) for module in modules if module not in shown]
            shown.update(modules)
            sections += [
                _formula_text(formula, [f"``{op}``" for op in ops])
                for formula, ops in formulas.items()
            ]
            sections += [
                _formula_text(helper, [f"`{name}`"]) for name, helper in _helpers(formulas).items()
            ]
    return "\n\n".join(sections)


def _formulas(category: str) -> dict[Callable[..., object], list[str]]:
    """Return the formulas of a category in the order of their registration, with their ops."""
    found: dict[Callable[..., object], list[str]] = {}
    for op, entry in registry._entries.items():
        if entry.category == category:
            # A formula that takes the call alone is registered inside another function.
            inside = inspect.getclosurevars(entry.formula).nonlocals
            found.setdefault(inside.get("formula", entry.formula), []).append(op)
    return found


def _helpers(formulas: Iterable[Callable[..., object]]) -> dict[str, Callable[..., object]]:
    """Return the functions that the formulas' docstrings name and that are no formulas."""
    found: dict[str, Callable[..., object]] = {}
    for formula in formulas:
        for name in re.findall(r"`(\w+)`", inspect.getdoc(formula) or ""):
            helper = getattr(inspect.getmodule(formula), name, None)
            if inspect.isfunction(helper) and helper not in formulas:
                found[name] = helper
    return found


def _formula_text(formula: Callable[..., object], names: list[str]) -> str:
    return f"{', '.join(names)}\n{textwrap.indent(_escaped_doc(formula), '   ')}"


def _escaped_doc(item: object) -> str:
    """Return a docstring with its text escaped, but not what it shows as code."""
    paragraphs = (inspect.getdoc(item) or "").split("\n\n")
    return "\n\n".join(p if p.startswith(" ") else _escaped(p) for p in paragraphs)


def devices() -> str:
    """Return the table of the devices with their peaks."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 18 8 10 8 10 20 20 8 8", ""]
    lines += _row(
        "device", "compute capability", "memory GB/s", "cache MiB", "cache GB/s",
        "matrix TFLOP/s", "vector TFLOP/s", "watts", "source",
    )  # fmt: skip
    sources = dict.fromkeys(device.source for device in DEVICES)
    numbers = {source: str(number) for number, source in enumerate(sources, 1)}
    for device in sorted(DEVICES, key=lambda device: (device.vendor, device.name)):
        cache = "" if device.l2_bytes is None else f"{device.l2_bytes / (1 << 20):g}"
        speed = "" if device.l2_bytes_per_s is None else f"{device.l2_bytes_per_s / 1e9:.0f}"
        bandwidth = device.memory_bytes_per_s
        memory = "" if bandwidth is None else f"{bandwidth / 1e9:g}"
        peaks = (_peaks(device.matrix_flop_per_s), _peaks(device.vector_flop_per_s))
        capability = device.compute_capability or ""
        number = numbers[device.source]
        watts = "" if device.watts is None else f"{device.watts:g}"
        lines += _row(device.name, capability, memory, cache, speed, *peaks, watts, number)
    lines += ["", *(f"{number}. {_escaped(source)}" for source, number in numbers.items())]
    return "\n".join(lines)


def _peaks(flop_per_s: Mapping[str, float]) -> str:
    return ", ".join(f"{dtype} {peak / 1e12:.5g}" for dtype, peak in flop_per_s.items())


def rules() -> str:
    """Return the table of the Tensor Core rules, in the order in which they are tried."""
    lines = [f"The version of these rules is {RULES_VERSION}.", "", ".. list-table::"]
    lines += ["   :header-rows: 1", "   :widths: 6 10 24 60", ""]
    lines += _row("", "answer", "kernels", "what the words in the name mean")
    for number, rule in enumerate(RULES, 1):
        lines += _row(str(number), rule.tensor_core, _escaped(rule.family), _escaped(rule.meaning))
    return "\n".join(lines)


def _heading(text: str, line: str) -> list[str]:
    return [text, line * len(text)]


def _output(command: str) -> str:
    """Return `command` with its output, as reST."""
    # A terminal goes on in the next line where one is too long for it.
    folded = (
        line[at : at + WIDTH]
        for line in output(command).strip("\n").splitlines()
        for at in range(0, max(1, len(line)), WIDTH)
    )
    lines = [f"$ {command}", *(line.rstrip() for line in folded)]
    return ".. code-block:: console\n\n" + textwrap.indent("\n".join(lines), "   ")


_WRITERS: Final[dict[str, Callable[[], str]]] = {
    "advice": advice,
    "batch": batch_columns,
    "causes": causes,
    "findings": findings,
    "noise": noise,
    "problems": problems,
    "skipped": skipped,
    "tables": tables,
    "views": views,
    "results": results,
    "sums": sums,
    "tutorial": tutorial,
    "lines": lines,
    "bins": bins,
    "commands": commands,
    "costs": costs,
    "devices": devices,
    "rules": rules,
}


if __name__ == "__main__":
    sys.exit(main())
