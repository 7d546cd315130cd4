"""The tree is what the design says: links, directions of imports, words, light imports."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib
import itertools
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = ROOT / "pyprof2"

ROOT_MODULES: Final = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
COMMANDS: Final = {"parse", "prof"}
"""What `python -m` runs, as PyProf had it: each leads to a command."""

LEAVES: Final = {f"pyprof2.{name}" for name in ROOT_MODULES - COMMANDS}
"""The words of the library: what every stage may import, and what imports nothing but itself."""

ABOVE: Final = (
    ("parsers", "analysis", "nvtx"), ("store",), ("pipeline",), ("api",), ("capture", "reports"),
    ("agents", "lsp", "integrations", "watch"), ("cli",),
)  # fmt: skip
"""The packages, the lowest first: none imports another of its own height, or one above it."""

WINGS: Final = (
    "linking", "hardware", "costs", "graphs", "compiled", "assembly", "time", "memory", "serving",
    "job", "prediction", "summaries",
)  # fmt: skip
"""The wings of the analyses, the lowest first: a wing imports none that comes after it."""

SIDE_BY_SIDE: Final = {("hardware", "linking")}
"""Wings that know nothing of one another, beside the order."""

BUILT_FROM: Final = ("setup.py", "setup.cfg", "pyproject.toml", "MANIFEST.in")

HEAVY: Final = (
    "torch", "nvtx", "pandas", "pyarrow", "numpy", "sqlalchemy", "tqdm", "tabulate",
    "duckdb", "mcp", "pydantic",
)  # fmt: skip


class Import(NamedTuple):
    """One import: by which module, of what, and whether it runs when the module is loaded."""

    importer: str
    imported: str
    at_load: bool
    for_types: bool


def _modules() -> dict[str, Path]:
    """Return every module of the package by its import name, through the links.

    `pyprof2/data` holds no modules: a training script lies there that `demo` runs.
    """
    modules = {}
    for folder in (PACKAGE, PACKAGE / "parsers", PACKAGE / "analysis"):
        for path in folder.rglob("*.py"):
            if path.is_relative_to(PACKAGE / "data"):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = path
    return modules


MODULES: Final = _modules()
RECORDERS: Final = {
    f"pyprof2.capture.{name}"
    for name in (
        "entry_points",
        "graph_captures",
        "on_cpu",
        "outputs",
        "recorders",
        "run_entry",
        "window",
    )
}
"""What runs in the recorded process; the rest of `capture` starts that process, without torch."""
RECORDING: Final = [
    name
    for name in MODULES
    if name.startswith(("pyprof2.nvtx", "pyprof2.integrations.")) or name in RECORDERS
]
"""What needs torch, nvtx or somebody's trainer to be imported."""
COMPILED: Final = "pyprof2.parsers._kineto_native"
"""What needs a compiler where it is installed; without one it is not imported."""
FUNCTION: Final = "pyprof2.parse"
"""What is no module when it has been imported."""


def _imports(name: str) -> Iterator[Import]:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    yield from _imports_in(name, tree.body, at_load=True, for_types=False)


def _imports_in(
    name: str, body: list[ast.stmt], *, at_load: bool, for_types: bool
) -> Iterator[Import]:
    for node in body:
        typed = for_types or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for imported in _imported(node):
            yield Import(name, imported, at_load and not typed, typed)
        for field in ("body", "orelse", "finalbody"):
            nested = getattr(node, field, [])
            for_types_here = typed and field == "body"
            yield from _imports_in(
                name, nested, at_load=at_load and not inside, for_types=for_types_here
            )
        for other in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            yield from _imports_in(name, other.body, at_load=at_load, for_types=typed)


def _imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"relative import at line {node.lineno}"
        module = node.module or ""
        # `from pyprof2 import tables` imports the module pyprof2.tables.
        return [
            full if (full := f"{module}.{alias.name}") in MODULES else module
            for alias in node.names
        ]
    return []


@functools.cache
def _imports_of() -> dict[str, list[Import]]:
    return {name: list(_imports(name)) for name in sorted(MODULES)}


def _all_imports() -> Iterator[Import]:
    return itertools.chain.from_iterable(_imports_of().values())


def _is_in(module: str, packages: set[str] | tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _own_imports(importers: set[str]) -> list[Import]:
    """Return the imports of our own modules by these packages."""
    return [
        item
        for item in _all_imports()
        if _is_in(item.importer, importers) and _is_in(item.imported, ("pyprof2",))
    ]


@pytest.mark.parametrize("name", ["parsers", "analysis"])
def test_the_package_links_to_the_top_level_folder(name: str) -> None:
    link = PACKAGE / name

    assert link.is_symlink()
    assert link.readlink() == Path("..", name)
    assert link.resolve() == ROOT / name
    assert (link / "__init__.py").is_file()


@pytest.fixture(scope="module")
def checkout_without_links(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree as git writes it where it makes no symbolic links."""
    copy = tmp_path_factory.mktemp("checkout") / "pyprof2"
    for name in ("pyprof2", "parsers", "analysis"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for name in (
        *BUILT_FROM,
        "README.rst",
        "LICENSE",
        "NOTICE",
        "CHANGELOG.rst",
        "constraints.txt",
    ):
        shutil.copy(ROOT / name, copy)
    for link in (copy / "pyprof2").iterdir():
        if link.is_symlink():
            target = link.readlink().as_posix()
            link.unlink()
            link.write_text(target)
    return copy


@pytest.mark.slow
def test_a_checkout_without_links_imports_all_modules(checkout_without_links: Path) -> None:
    program = f"""
import importlib, sys
sys.path.insert(0, {str(checkout_without_links)!r})
for name in {sorted(set(MODULES) - {*RECORDING, COMPILED, FUNCTION})!r}:
    path = importlib.import_module(name).__file__
    assert path.startswith({str(checkout_without_links)!r}), path"""

    subprocess.run([sys.executable, "-I", "-c", program], check=True)


def _packed(
    checkout: Path, out: Path, kind: str = "wheel", **settings: str
) -> tuple[str, set[str]]:
    """Return the name of the wheel or source archive of a checkout, and what is in it."""
    pytest.importorskip("setuptools")
    program = f"from setuptools.build_meta import build_{kind} as b; b({str(out)!r})"
    subprocess.run(
        [sys.executable, "-c", program],
        check=True, cwd=checkout, capture_output=True, env={**os.environ, **settings},
    )  # fmt: skip
    (archive,) = out.iterdir()
    if kind == "wheel":
        return archive.name, set(zipfile.ZipFile(archive).namelist())
    with tarfile.open(archive) as found:
        return archive.name, {name.partition("/")[2] for name in found.getnames()}


MODULE_FILES: Final = {path.relative_to(ROOT).as_posix() for path in MODULES.values()}
LIBRARIES: Final = {
    f"pyprof2/{name}.abi3.so"
    for name in (
        "analysis/_nest", "parsers/_scan", "parsers/_snapshot_events",
        "reports/perfetto/_packets",
    )
}  # fmt: skip
SOURCES: Final = {
    "analysis/_nest.c", "parsers/_dictionary.h", "parsers/_scan.c", "parsers/_snapshot_events.c",
    "pyprof2/nvtx/observer.cpp",
    "pyprof2/reports/perfetto/_packets.c",
}  # fmt: skip


def test_a_pure_wheel_from_a_checkout_without_links_holds_all_modules(
    checkout_without_links: Path, tmp_path: Path
) -> None:
    name, packed = _packed(checkout_without_links, tmp_path, PYPROF2_PURE="1")

    assert name.endswith("-py3-none-any.whl")
    assert packed >= MODULE_FILES
    assert {"pyprof2/py.typed", "pyprof2/data/demo.json.gz"} <= packed
    assert "pyprof2/nvtx/observer.cpp" in packed
    assert not {name for name in packed if name.endswith((".so", ".pyd"))}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")
def test_a_compiled_wheel_is_for_every_python_from_the_oldest_one_on(
    checkout_without_links: Path, tmp_path: Path
) -> None:
    name, packed = _packed(checkout_without_links, tmp_path, PYPROF2_PURE="")

    assert "-cp311-abi3-" in name
    assert {name for name in packed if name.endswith((".so", ".pyd"))} == LIBRARIES
    assert packed >= MODULE_FILES


def test_a_compiler_that_fails_is_no_error(checkout_without_links: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    shutil.copytree(checkout_without_links, copy, ignore=shutil.ignore_patterns("build"))
    _, packed = _packed(copy, tmp_path / "out", PYPROF2_PURE="", CC="false")

    assert packed >= MODULE_FILES
    assert not packed & LIBRARIES


def test_a_source_archive_holds_what_a_wheel_is_built_from(
    checkout_without_links: Path, tmp_path: Path
) -> None:
    _, packed = _packed(checkout_without_links, tmp_path, "sdist")

    assert {*BUILT_FROM, *SOURCES, "parsers/kineto.py"} <= packed
    assert not {name for name in packed if name.endswith((".so", ".pyd"))}


def test_the_list_of_packages_is_whole() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")

    listed = settings["options"]["packages"].split()

    assert sorted(listed) == sorted(n for n, p in MODULES.items() if p.name == "__init__.py")


def test_leaf_modules_import_only_leaf_modules() -> None:
    wrong = [item for item in _own_imports(LEAVES) if not _is_in(item.imported, LEAVES)]

    assert wrong == []


@pytest.mark.parametrize("package", ["pyprof2.parsers", "pyprof2.nvtx", "pyprof2.analysis"])
def test_a_stage_imports_only_the_vocabulary_and_itself(package: str) -> None:
    wrong = [
        item
        for item in _own_imports({package})
        if item.imported != "pyprof2" and not _is_in(item.imported, {*LEAVES, package})
    ]

    assert wrong == []


def _height(module: str) -> int | None:
    parts = module.split(".")
    heights = {name: height for height, names in enumerate(ABOVE) for name in names}
    return heights.get(parts[1]) if len(parts) > 1 else None


def test_arrows_between_the_packages_go_one_way() -> None:
    wrong = [
        item
        for item in _own_imports({"pyprof2"})
        if (by := _height(item.importer)) is not None
        and (to := _height(item.imported)) is not None
        and by <= to
        and item.importer.split(".")[1] != item.imported.split(".")[1]
    ]

    assert wrong == []


def _wing(module: str) -> str | None:
    parts = module.removeprefix("pyprof2.analysis.").split(".")
    return parts[0] if parts[0] in WINGS else None


def test_the_wings_of_the_analyses_are_all_listed() -> None:
    folders = {path.parent.name for path in (ROOT / "analysis").glob("*/__init__.py")}

    assert folders == set(WINGS)


def test_arrows_between_the_wings_go_one_way() -> None:
    wrong = [
        item
        for item in _own_imports({"pyprof2.analysis"})
        if (to := _wing(item.imported)) is not None
        and (by := _wing(item.importer)) != to
        and (by is None or WINGS.index(by) < WINGS.index(to) or (by, to) in SIDE_BY_SIDE)
    ]

    assert wrong == []


def _reached_from(module: str, package: str) -> set[str]:
    """Return the modules of a package that one of them imports, itself or through others."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        found = {
            item.imported
            for item in _imports_of().get(waiting.pop(), [])
            if _is_in(item.imported, (package,)) and item.imported != package
        }
        waiting += found - reached
        reached |= found
    return reached


def test_nothing_but_its_command_imports_the_editors_server() -> None:
    wrong = [
        item
        for item in _all_imports()
        if _is_in(item.imported, ("pyprof2.lsp", "pygls", "lsprotocol", "yaml"))
        and not _is_in(item.importer, ("pyprof2.lsp",))
        and not (item.importer == "pyprof2.cli.lsp" and not item.at_load)
        # Where the batch size stands in a file.
        and not (item.importer == "pyprof2.cli.batch" and item.imported == "pyprof2.lsp.batch_size")
    ]

    assert wrong == []


def test_nothing_but_its_command_imports_the_server_of_agents() -> None:
    wrong = [
        item
        for item in _all_imports()
        if _is_in(item.imported, ("pyprof2.agents", "mcp", "mcp_types"))
        and not _is_in(item.importer, ("pyprof2.agents",))
        and not (item.importer == "pyprof2.cli.mcp" and not item.at_load)
    ]

    assert wrong == []


def test_no_imports_go_round_in_a_circle() -> None:
    """Those that run late, or are for types alone, count too."""
    wrong = [name for name in MODULES if name in _reached_from(name, "pyprof2")]

    assert wrong == []


def test_nothing_but_the_command_line_imports_the_command_line() -> None:
    allowed = ("pyprof2.cli", "pyprof2.__main__")
    wrong = [
        item
        for item in _all_imports()
        if _is_in(item.imported, ("pyprof2.cli",)) and not _is_in(item.importer, allowed)
    ]

    assert wrong == []


def test_torch_and_nvtx_are_imported_only_to_annotate_and_record() -> None:
    late = ("pyprof2.cli.demo", "pyprof2.cli.capture", "pyprof2.capture.script")
    recording = ("pyprof2.nvtx", "pyprof2.integrations.recording", *RECORDERS)
    wrong = [
        item
        for item in _all_imports()
        if _is_in(item.imported, ("torch", "nvtx", "pyprof2.nvtx", *RECORDERS))
        and not _is_in(item.importer, recording)
        and not (item.importer in late and not item.at_load)
        and not (item.importer == "pyprof2" and item.for_types)
    ]

    assert wrong == []


def _loaded_by(code: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after `code`."""
    program = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.splitlines()[-1].split())


def test_reading_a_store_loads_nothing_that_makes_one() -> None:
    code = "import pyprof2.api.run\nassert 'pyprof2.pipeline' not in sys.modules"

    assert "pyprof2" in _loaded_by(code)


def test_importing_pyprof2_loads_nothing_heavy() -> None:
    assert _loaded_by("import pyprof2") & set(HEAVY) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["prof", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from pyprof2.cli import main
try:
    main({arguments})
except SystemExit as exit:
    assert not exit.code, exit.code"""

    assert _loaded_by(code) & set(HEAVY) == set()


@pytest.mark.parametrize("name", ["Run", "load", "parse"])
def test_a_name_to_read_with_is_loaded_on_first_use(name: str) -> None:
    assert name in dir(pyprof2)
    assert getattr(pyprof2, name) is getattr(importlib.import_module("pyprof2.api.run"), name)


@pytest.mark.parametrize("name", ["annotate", "init", "record", "shutdown", "step", "wrap"])
def test_a_name_to_annotate_with_is_loaded_on_first_use(name: str) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("nvtx")

    assert name in dir(pyprof2)
    home = "integrations.recording" if name == "record" else "nvtx"
    assert getattr(pyprof2, name) is getattr(importlib.import_module(f"pyprof2.{home}"), name)


def test_the_annotation_is_an_attribute_that_is_imported_when_asked_for() -> None:
    pytest.importorskip("torch")
    code = "import pyprof2, sys; assert 'torch' not in sys.modules; print(pyprof2.nvtx.wrap)"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)

    assert result.stdout.startswith(b"<function wrap")


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pyprof2.nonsense


@pytest.mark.parametrize("word", ["CUPTI_", "globalTid", "globalPid", "External id", "Ev Idx"])
def test_a_word_of_a_format_stops_at_its_parser(word: str) -> None:
    found = [
        name
        for name, path in MODULES.items()
        if not _is_in(name, ("pyprof2.parsers",)) and word in path.read_text(encoding="utf-8")
    ]

    assert found == []


def test_only_tests_and_benchmarks_know_the_shared_folder() -> None:
    texts = [*MODULES.values(), *ROOT.glob("*.rst"), *ROOT.glob("docs/**/*.rst")]
    texts += [*ROOT.glob("docs/*.py"), *ROOT.glob("examples/*.py"), ROOT / "Makefile"]
    word = "../" + "shared"

    assert [path for path in texts if word in path.read_text(encoding="utf-8")] == []


def _undocumented(name: str) -> Iterator[str]:
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    if tree.body and not ast.get_docstring(tree):
        yield name
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        members = node.body if isinstance(node, ast.ClassDef) else []
        for item in (node, *(m for m in members if isinstance(m, ast.FunctionDef))):
            if not item.name.startswith("_") and not ast.get_docstring(item):
                yield f"{name}.{item.name}"


def test_every_public_module_class_and_function_says_what_it_is() -> None:
    assert [item for name in sorted(MODULES) for item in _undocumented(name)] == []
