"""Entry points of Skyline and DeepView: a file whose functions say what a training iteration is.

::

    def skyline_model_provider(): ...  # returns the model
    def skyline_input_provider(batch_size=16): ...  # returns the values of one batch
    def skyline_iteration_provider(model): ...  # returns what is called: iteration(*inputs)

or the same with `deepview_` in place of `skyline_`. The rules are those of Skyline's documentation
("Providers"), and what its samples do: the file is imported under its own name, its folder comes
first on `sys.path` and the root of its project next, `sys.argv` has its path alone, and the working
folder stays as it is.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

from pyprof2.errors import CaptureError
from pyprof2.frames import is_own_path

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIXES: Final = ("skyline", "deepview")
ROLES: Final = ("model_provider", "input_provider", "iteration_provider")
_ROOT_MARKS: Final = (".git", "setup.py", "pyproject.toml")
"""Names in the root of a project."""
_NO_NAME: Final = "_entry_point"
"""The module's name where the file's own is that of a module which is there already."""
_NO_MEMORY: Final = ("can't allocate memory", "not enough memory", "out of memory")
_TEXT_MAX: Final = 300


class EntryPointError(CaptureError):
    """An entry point breaks a rule, or its code failed; the message begins with `file:line`.

    Attributes:
        out_of_memory: whether it failed because there was no memory left.
    """

    def __init__(
        self, path: str | Path, line: int, text: str, *, out_of_memory: bool = False
    ) -> None:
        super().__init__(f"{_shown(str(path))}:{line}: {text}")
        self.out_of_memory = out_of_memory


@dataclass(frozen=True)
class EntryPoint:
    """The functions of an entry point.

    Attributes:
        path: of the file, absolute.
        prefix: `skyline` or `deepview`.
        model, inputs, iteration: the providers.
        batch_size: the default of the input provider.
    """

    path: Path
    prefix: str
    model: Callable[[], Any]
    inputs: Callable[..., Any]
    iteration: Callable[[Any], Any]
    batch_size: int

    def build(self, batch_size: int) -> tuple[Any, Callable[..., Any], tuple[Any, ...]]:
        """Return the model, the iteration and the values that it is called with.

        Made are the model, then the inputs, then the iteration, each once.

        Raises:
            EntryPointError: the code fails, or returns what is none of these.
        """
        with self.users_code():
            model = self.model()
        self._require(callable(model), self.model, f"returns {_kind(model)}, which is no model")
        with self.users_code():
            given = self.inputs(batch_size=batch_size)
            is_values = isinstance(given, Iterable) and not isinstance(
                given, (torch.Tensor, Mapping, str, bytes)
            )
            inputs = tuple(given) if is_values else ()
        self._require(
            is_values, self.inputs,
            f"returns {_kind(given)}; the iteration is called with several values: return a "
            "tuple or a list of them, (x,) where there is one",
        )  # fmt: skip
        with self.users_code():
            iteration = self.iteration(model)
        self._require(
            callable(iteration), self.iteration,
            f"returns {_kind(iteration)}; return the function that runs one iteration",
        )  # fmt: skip
        return model, iteration, inputs

    def run(self, iteration: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        """Run one iteration; what it returns is of no use."""
        with self.users_code(given=len(inputs)):
            iteration(*inputs)

    @contextlib.contextmanager
    def users_code(self, given: int | None = None) -> Iterator[None]:
        """Say of an error in the user's code where it is.

        Args:
            given: how many values the iteration is called with.
        """
        with _errors_of(self.path, given):
            yield

    def _require(self, holds: bool, function: object, text: str) -> None:  # noqa: FBT001
        if not holds:
            path, line = _place_of(function, self.path)
            name = getattr(function, "__name__", "the provider")
            raise EntryPointError(path, line, f"{name} {text}")


def load_entry_point(path: Path) -> EntryPoint:
    """Run the file of an entry point, and return its functions.

    Raises:
        EntryPointError: it fails, or its functions are not those of an entry point.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 -- a link stays where the user put it
    folder, root = str(path.parent), str(project_root(path))
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    if root not in sys.path:
        sys.path.insert(1, root)
    sys.argv = [str(path)]
    with _errors_of(path):
        module = _run_file(path)
    prefix = _prefix_of(vars(module), path)
    model, inputs, iteration = (vars(module)[f"{prefix}_{role}"] for role in ROLES)
    for function, count in ((model, 0), (iteration, 1)):
        _check_arity(function, count, path)
    return EntryPoint(path, prefix, model, inputs, iteration, _default_batch(inputs, path))


def project_root(path: Path) -> Path:
    """Return the nearest folder around a file that is a project's; without one the current one."""
    marked = (
        folder for folder in path.parents if any((folder / name).exists() for name in _ROOT_MARKS)
    )
    return next(marked, Path.cwd())


def own_folder(path: Path) -> Path:
    """Return the folder of the user's own code: the project's, if the file lies in it."""
    root = project_root(path)
    return root if path.is_relative_to(root) else path.parent


def _run_file(path: Path) -> ModuleType:
    """Run a file as a module of its own, which its functions and classes can be found in."""
    name = path.stem
    if not name.isidentifier() or name in sys.modules:
        name = _NO_NAME
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 -- asked for
    return module


def _prefix_of(names: Mapping[str, Any], path: Path) -> str:
    """Return the prefix of the providers that a file has; all three, and of one kind only."""
    has = {
        prefix: [f"{prefix}_{role}" for role in ROLES if f"{prefix}_{role}" in names]
        for prefix in PREFIXES
    }
    if all(has.values()):
        (path, line), (_, other) = (_place_of(names[has[p][0]], path) for p in PREFIXES)
        first, second = (has[prefix][0] for prefix in PREFIXES)
        text = f"has {first} here and {second} at line {other}: keep those of one kind"
        raise EntryPointError(path, line, text)
    prefix = next((prefix for prefix in PREFIXES if has[prefix]), PREFIXES[0])
    missing = [name for role in ROLES if (name := f"{prefix}_{role}") not in names]
    if missing:
        where, line = _place_of(names[has[prefix][0]], path) if has[prefix] else (path, 1)
        also = "" if has[prefix] else f" (nor those of {PREFIXES[1]})"
        raise EntryPointError(where, line, f"the file has no {', '.join(missing)}{also}")
    for role in ROLES:
        if not callable(names[f"{prefix}_{role}"]):
            raise EntryPointError(path, 1, f"{prefix}_{role} is no function")
    return prefix


def _check_arity(function: Callable[..., Any], count: int, path: Path) -> None:
    parameters = inspect.signature(function).parameters.values()
    if len(parameters) == count and all(p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY)
                                        for p in parameters):  # fmt: skip
        return
    wanted = "takes no parameter" if count == 0 else "takes one parameter, the model"
    where, line = _place_of(function, path)
    name = getattr(function, "__name__", "the provider")
    raise EntryPointError(where, line, f"{name} has {len(parameters)} parameters; it {wanted}")


def _default_batch(function: Callable[..., Any], path: Path) -> int:
    """Return the default of the one parameter of the input provider."""
    parameters = list(inspect.signature(function).parameters.values())
    default = parameters[0].default if len(parameters) == 1 else None
    is_named = len(parameters) == 1 and parameters[0].name == "batch_size"
    is_size = isinstance(default, int) and not isinstance(default, bool) and default >= 1
    if is_named and is_size:
        return int(default or 0)
    where, line = _place_of(function, path)
    name = getattr(function, "__name__", "the provider")
    text = "takes one parameter, batch_size, whose default is a number of 1 or more"
    raise EntryPointError(where, line, f"{name}{inspect.signature(function)}: it {text}")


def _place_of(function: object, path: Path) -> tuple[Path, int]:
    """Return the file and line of a function's definition; for anything else, the file's first."""
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if isinstance(code, CodeType):
        return Path(code.co_filename), code.co_firstlineno
    return path, 1


@contextlib.contextmanager
def _errors_of(path: Path, given: int | None = None) -> Iterator[None]:
    try:
        yield
    except EntryPointError:
        raise
    except (Exception, SystemExit) as error:
        where, line = _innermost(error, path)
        text = _text_of(error)
        is_arity = isinstance(error, TypeError) and "positional argument" in str(error)
        if given is not None and is_arity:
            text += f" (the input provider returns {given}, and the iteration is called with these)"
        kinds = (
            getattr(torch, "OutOfMemoryError", MemoryError),
            torch.cuda.OutOfMemoryError,
            MemoryError,
        )
        # On the CPU torch has no class for it.
        out_of_memory = isinstance(error, kinds) or (
            isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
        )
        raise EntryPointError(where, line, text, out_of_memory=out_of_memory) from error


def _innermost(error: BaseException, path: Path) -> tuple[str | Path, int]:
    """Return the file and line of the user's own code where an error is."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return error.filename, error.lineno
    folder = str(own_folder(path))
    own = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_own_path(frame.f_code.co_filename, folder)
    ]
    return own[-1] if own else (path, 1)


def _text_of(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the code ended the program (exit code {error.code})"
    # `str` of a syntax error repeats the file and the line.
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    first = next((line.strip() for line in words.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:_TEXT_MAX]}" if first else type(error).__name__


def _kind(value: object) -> str:
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def _shown(path: str) -> str:
    """Return a path as short as it goes: from the current folder on, if it is in there."""
    with contextlib.suppress(ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path
