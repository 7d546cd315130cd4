"""Finds the compiled observer of ops (`observer.cpp`): compiles it, loads it, and tests it.

It needs torch's headers of the very version that runs, so no wheel has it: it is compiled where it
is first used, which takes some 20 seconds once, and kept in the user's cache for this torch, this
Python and this source. Where there is no compiler, or the test says that it sees an op in another
way than it was called, ops are marked by a dispatch mode (`ops.py`), which costs more.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import threading
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from pyprof2 import is_pure
from pyprof2.nvtx.internals import ENGINE_RUN, Need, lack, next_sequence_nr, sequence_nr
from pyprof2.own_files import cache_folder, is_own, make_own_folder

SWITCH: Final = "PYPROF2_OBSERVER"
"""The variable that says whether the observer is used: 0 is no, anything else yes."""

SOURCE: Final = Path(__file__).with_name("observer.cpp")
SECONDS_AT_MOST: Final = 300
"""A compiler that takes longer is stopped."""

_INJECTED: Final = ("NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "LD_PRELOAD")
_LOG: Final = logging.getLogger("pyprof2")
LACKS_RANGES: Final = (
    "ops are marked by a dispatch mode, which costs more and has autograd add up gradients"
    " in new memory"
)
LACKS_LINES: Final = (
    "torch.profiler records Python stacks for the lines of ops, which costs more and does not"
    " know those of operators and subscripts"
)
LACKS_ALL_LINES: Final = (
    "torch.profiler gets the lines that call modules, and none of ops: with_stack=True gets them"
)
LACKS_ON_DEMAND: Final = (
    "recordings of pyprof2 watch get no layers, lines and steps of this process: watch --with-stack"
    " gets lines"
)
"""The ways to do without the observer, and what each lacks."""


def is_wanted() -> bool:
    """Return whether the observer is to be used where there is one."""
    return not is_pure() and os.environ.get(SWITCH) != "0"


def observer(lacks: str = LACKS_RANGES) -> Any:
    """Return the compiled observer; None: it is not wanted, or there is none that works.

    Args:
        lacks: what is done without it, which is said once if it was wanted.
    """
    if not is_wanted():
        return None
    found = _observer()
    if isinstance(found, _Unusable):
        _say(f"{lacks} ({found})")
        return None
    return found


@functools.cache
def _observer() -> Any:
    try:
        module = _load(_path_of_binary())
        check(module)
    except _Unusable as error:
        return error
    except Exception as error:  # noqa: BLE001 -- whatever a torch of another kind does
        return _Unusable(f"the test failed: {error}")
    _LOG.info("ops are followed by the compiled observer of torch %s", torch.__version__)
    return module


def callbacks_cleared() -> None:
    """Let the observer, if one is loaded, register itself anew: torch has forgotten it."""
    if _observer.cache_info().currsize and not isinstance(found := _observer(), _Unusable):
        found.cleared()


@functools.cache
def _say(text: str) -> None:
    _LOG.warning("%s", text)


class _Unusable(Exception):  # noqa: N818 -- it says why there is no observer
    """Why there is no observer."""


class _CompilerFailed(_Unusable):
    """It would fail again."""


def _give_up(why: str) -> NoReturn:
    """Have no observer.

    Raises:
        _Unusable: always.
    """
    raise _Unusable(why)


# -- find and compile ------------------------------------------------------------------------------


def _path_of_binary() -> Path:
    """Return the observer for this torch and this Python; it is compiled if there is none."""
    if sys.platform != "linux":
        _give_up(f"not tried on {sys.platform}")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        _give_up("not made for Python without a GIL")
    try:
        source = SOURCE.read_bytes()
    except OSError as error:
        msg = f"{SOURCE.name} is not installed"
        raise _Unusable(msg) from error
    facts = (torch.__version__, sysconfig.get_config_var("SOABI"), *_flags(), platform.machine())
    key = hashlib.sha256(source + "\n".join(map(str, facts)).encode()).hexdigest()[:16]
    try:
        folder = cache_folder()
        path = folder / f"observer-{key}.so"
        make_own_folder(folder)
        if is_own(path):
            return path
        with _one_at_a_time(folder):
            if not is_own(path):
                _compile_once(path)
    except OSError as error:
        msg = f"{error.filename or 'its cache'}: {error.strerror}"
        raise _Unusable(msg) from error
    return path


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Any:
    """Let one process compile, and others wait; one that is killed leaves nothing locked."""
    import fcntl

    with os.fdopen(os.open(folder / "observer.lock", os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _flags() -> tuple[str, ...]:
    abi = int(torch.compiled_with_cxx11_abi())
    groups = ("-DOBSERVER_HAS_GROUPS", "-DUSE_C10D") if torch.distributed.is_available() else ()
    standard = (
        "-std=c++20"
        if torch.torch_version.TorchVersion(torch.__version__) >= "2.9"
        else "-std=c++17"
    )
    # Without NDEBUG, RecordFunction has a member more than in torch's own build.
    return (
        standard,
        "-O2",
        "-fPIC",
        "-shared",
        "-DNDEBUG",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *groups,
    )


def _compile_once(path: Path) -> None:
    """Compile, and remember where that failed: it takes long to find out."""
    failed = path.with_suffix(".failed")
    if is_own(failed):
        _give_up(failed.read_text())
    try:
        _compile(path)
    except _CompilerFailed as error:
        failed.write_text(f"{error}; to try again: rm {failed}")
        raise


def _compile(path: Path) -> None:
    compiler = next(
        filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None
    )
    if compiler is None:
        _give_up("there is no C++ compiler")
    home = Path(torch.__file__).parent
    _LOG.warning("compiling the observer of ops for torch %s, once", torch.__version__)
    includes = [
        sysconfig.get_path("include"),
        home / "include",
        home / "include/torch/csrc/api/include",
    ]
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    command = [
        compiler, *_flags(), *(f"-I{folder}" for folder in includes), SOURCE, "-o", unfinished,
        f"-L{home / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{home / 'lib'}",
    ]  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if name not in _INJECTED}
    try:
        _run([str(part) for part in command], environment, "the compiler failed")
        _test_apart(unfinished, environment)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _run(command: list[str], environment: dict[str, str], what: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 -- a compiler, or Python with a file of ours
            command, env=environment, capture_output=True, text=True, check=False,
            timeout=SECONDS_AT_MOST,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{what}: {error}"
        raise _Unusable(msg) from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        msg = f"{what}: {errors[0] if errors else f'exit code {done.returncode}'}"
        raise _CompilerFailed(msg)


def _test_apart(path: Path, environment: dict[str, str]) -> None:
    """Test a new binary in a process of its own: one that does not fit may end the process."""
    if not Path(sys.executable or "").name.lower().startswith("python"):
        return
    roots = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]
    environment = environment | {"PYTHONPATH": os.pathsep.join(filter(None, roots))}
    code = "import sys; from pyprof2.nvtx import observers as o; o.check(o._load(sys.argv[1]))"
    _run([sys.executable, "-P", "-c", code, str(path)], environment, "the test failed")


def _load(path: Path | str) -> Any:
    loader = ExtensionFileLoader("pyprof2.nvtx._observer", str(path))
    spec = importlib.util.spec_from_file_location(loader.name, str(path), loader=loader)
    if spec is None:
        _give_up(f"{path} cannot be loaded")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        msg = f"{path} cannot be loaded: {error}"
        raise _Unusable(msg) from error
    return module


# -- test ------------------------------------------------------------------------------------------

_KNOWN: Final = (("Float", (2, 3), None, "cpu", 24), ("Double", (3,), (2,), "cpu", 24), 2)
"""The inputs to be seen of the op that the test calls."""


class _Test:
    """Is asked, and keeps what the observer says."""

    def __init__(self) -> None:
        self.ops: list[tuple[str, str]] = []
        self.inputs: list[Any] = []
        self.pushed: list[tuple[str, int]] = []
        self.popped = 0

    def classify(self, frame: Any) -> int:
        """Return that the code of the test is the user's, and all other is nobody's."""
        return 2 if frame.f_code.co_filename == __file__ else 0

    def place(self, frame: Any) -> int:
        """Return the line of the test."""
        while frame.f_code.co_filename != __file__:
            frame = frame.f_back
        return int(frame.f_lineno)

    def site(
        self, name: str, overload: str, _way: int, _where: int, place: int
    ) -> tuple[int, int, int]:
        """Note an op; its number is that of its line."""
        self.ops.append((name, overload))
        return place, place, 0

    def message(self, site: int, inputs: list[Any]) -> tuple[str, bool, int]:
        """Note the inputs of an op, whose text is not kept."""
        self.inputs.append(inputs)
        return str(site), False, 0

    def push(self, message: str, payload: int) -> None:
        """Note the beginning of a range."""
        self.pushed.append((message, payload))

    def pop(self, _domain: Any) -> None:
        """Note the end of a range."""
        self.popped += 1


def check(module: Any) -> None:
    """See that the observer sees a known op as it is: name, shapes, dtypes, number, line.

    On a thread of its own, where no mode of the program is on, and no number of its nodes is taken.

    Raises:
        _Unusable: it sees another one.
    """
    test, found = _Test(), []
    knows_numbers = lack(Need.OPS) is None  # else they are not compared

    def run() -> None:
        x = torch.empty((2, 3), dtype=torch.float32, device="cpu", requires_grad=True)
        y = torch.empty((6,), dtype=torch.float64, device="cpu")[::2]
        module.activate(True)  # noqa: FBT003 -- its only argument
        number = next_sequence_nr()
        for _ in range(2):
            results.append(torch.add(x, y, alpha=2))
            results.append(torch.add(x, y, alpha=2))
        module.activate(False)  # noqa: FBT003
        own = sequence_nr(results[0].grad_fn) if knows_numbers else number
        found.append((number, own))

    results: list[Any] = []
    module.start(test, {}, test.push, test.pop, None, 3, ENGINE_RUN)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        module.stop(False)  # noqa: FBT003
    ((number, of_node),) = found or ((-1, -2),)
    payloads = [payload & ((1 << 40) - 1) for _, payload in test.pushed]
    if not knows_numbers and payloads:
        number = of_node = payloads[0]
    lines = [int(text) for text, _ in test.pushed]
    first = min(lines, default=0)
    is_seen = (test.ops, test.popped) == ([("aten::add", "Tensor")] * 2, 4)
    if not is_seen or payloads != [*range(number, number + 4)]:
        _give_up(f"the test saw {test.ops} with numbers {payloads}")
    if lines != [first, first + 1] * 2:
        _give_up(f"the test saw lines {lines}")
    if number != of_node or [tuple(inputs) for inputs in test.inputs] != [_KNOWN] * 4:
        _give_up(f"the test saw other inputs: {test.inputs}")
