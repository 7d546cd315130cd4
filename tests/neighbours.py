"""Two users of one machine: what the one plants, and what the other's commands make of it.

Run by root as a program, `python -m tests.neighbours NAME`, in a mount and a network namespace of
its own with an empty `/tmp`: it becomes both users, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.synthetic_trace import synthetic_trace
from tests.watch.jobs_of_tests import STAND_IN

if TYPE_CHECKING:
    from collections.abc import Callable

NEIGHBOUR, VICTIM = 4001, 4002
SHARED: Final = Path("/tmp/shared")  # noqa: S108 -- of this namespace alone
HOME: Final = Path("/tmp/home")  # noqa: S108

NAMESPACE: Final = """
set -e
base=$1 closed=$2; shift 2
mount -t tmpfs -o mode=1777 none /tmp
if [ -n "$closed" ]; then
    mkdir /tmp/.base
    mount --bind "$base" /tmp/.base
    mount -t tmpfs -o mode=755 none "$closed"
    mkdir -p "$base"
    mount --bind /tmp/.base "$base"
fi
exec "$@"
"""
"""Gives an empty /tmp, and a Python in a folder that other users may not enter to all of them."""

_SQUATS: Final = """
import socket, sys
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
own.bind("\\0dynolog\\0")
print("bound", flush=True)
own.settimeout(12)
try:
    print("asked by", own.recvfrom(4096)[1], flush=True)
except TimeoutError:
    print("nobody asked", flush=True)
"""


def closed_folder(path: Path) -> Path | None:
    """Return the outermost folder around a path that other users may not enter, if any."""
    around = [path, *path.parents][::-1]
    return next((each for each in around if not each.stat().st_mode & 0o001), None)


def words_for(name: str) -> list[str]:
    """Return the command that runs a function of this module in namespaces of its own."""
    base = Path(sys.base_prefix).resolve()
    start = ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", NAMESPACE, "sh"]
    own = [sys.executable, "-P", "-m", "tests.neighbours", name]
    return [*start, str(base), str(closed_folder(base) or ""), *own]


def start(user: int, *words: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program as a user, in the shared folder; an empty variable is not set."""
    given = os.environ | {"HOME": str(HOME), "LC_ALL": "C"} | environment
    return subprocess.Popen(
        words, user=user, group=user, extra_groups=[], cwd=SHARED, text=True,
        env={name: value for name, value in given.items() if value},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(user: int, *words: str, **environment: str) -> dict[str, Any]:
    """Run a program as a user, and return its exit code and what it printed."""
    child = start(user, *words, **environment)
    try:
        out, err = child.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        child.kill()
        return {"code": None, "out": "", "err": "it hangs"}
    return {"code": child.returncode, "out": out, "err": err}


def pyprof2(*words: str, **environment: str) -> dict[str, Any]:
    """Run pyprof2 as the victim."""
    return run(VICTIM, sys.executable, "-P", "-m", "pyprof2", *words, **environment)


def plant(code: str) -> None:
    """Run a program as the neighbour."""
    done = run(NEIGHBOUR, sys.executable, "-P", "-c", f"import os; os.umask(0)\n{code}")
    assert done["code"] == 0, done


def _trace() -> str:
    path = HOME / "trace.json"
    path.write_text(json.dumps(synthetic_trace()))
    path.chmod(0o644)
    return str(path)


def socket_name() -> dict[str, Any]:
    """The neighbour takes the name that jobs ask by default."""
    squatter = start(NEIGHBOUR, sys.executable, "-P", "-c", _SQUATS)
    assert squatter.stdout is not None
    assert squatter.stdout.readline() == "bound\n"
    env = pyprof2("watch", "--env")
    lines = [line.removeprefix("export ") for line in env["out"].splitlines() if "=" in line]
    variables = dict(line.split("=", 1) for line in lines if line.startswith("KINETO"))
    folder = variables.get("KINETO_IPC_SOCKET_DIR", "")
    job = start(VICTIM, sys.executable, "-P", "-c", STAND_IN.replace(
        'text = ""', "while not os.path.exists(f'{folder}/dynolog'): time.sleep(.1)\ntext = ''"
    ), folder, "silent", **variables)  # fmt: skip
    try:
        listed = pyprof2("watch", "--list")
    finally:
        job.kill()
    return {"env": env, "folder": folder, "listed": listed, "said": squatter.communicate()[0]}


def socket_folder() -> dict[str, Any]:
    """The neighbour makes the folder of the victim's sockets, open to all."""
    name = f"/tmp/pyprof2-watch-{VICTIM}"  # noqa: S108
    plant(f"os.mkdir({name!r}, 0o777)")
    return {"env": pyprof2("watch", "--env"), "list": pyprof2("watch", "--list")}


def socket_link() -> dict[str, Any]:
    """The neighbour links the folder of the victim's sockets to one of theirs."""
    name = f"/tmp/pyprof2-watch-{VICTIM}"  # noqa: S108
    plant(f"os.mkdir('{SHARED}/mine', 0o777); os.symlink('{SHARED}/mine', {name!r})")
    return {"env": pyprof2("watch", "--env"), "list": pyprof2("watch", "--list")}


def abandoned_folders() -> dict[str, Any]:
    """The neighbour plants folders like those that killed daemons left."""
    precious = HOME / "pyprof2-watch-of-mine.json"
    precious.write_text("{}")
    os.chown(precious, VICTIM, VICTIM)
    kinds = {
        "list": f"open(lock, 'w').write('{precious}\\n')",
        "zero": "os.symlink('/dev/zero', lock)",
        "huge": "open(lock, 'w').truncate(1 << 40)",
        "pipe": "os.mkfifo(lock, 0o666)",
    }
    for kind, code in kinds.items():
        folder = f"{SHARED}/watch-{kind}/.watch-evil"
        plant(f"os.makedirs({folder!r}); lock = '{folder}/pyprof2-watch-lock'; {code}")
    code = (
        "from pathlib import Path; from pyprof2.watch.recording import remove_abandoned; "
        f"remove_abandoned(Path('{SHARED}/out'))"
    )
    began = time.monotonic()
    done = run(VICTIM, sys.executable, "-P", "-c", code)
    return {"done": done, "seconds": time.monotonic() - began, "kept": precious.exists()}


def cache() -> dict[str, Any]:
    """The neighbour makes the victim's folder of caches, and puts files of all kinds into it."""
    plant(f"os.makedirs('{SHARED}/cache/pyprof2', 0o777)")
    code = (
        "from pyprof2.nvtx import cpu_peaks; path = cpu_peaks._kept_at(1); "
        "print(path); print(cpu_peaks._read(path)); cpu_peaks._keep(path, None); "
        "from pyprof2.nvtx import observers; print(type(observers._observer()).__name__)"
    )
    words, cache = (sys.executable, "-P", "-c", code), {"XDG_CACHE_HOME": f"{SHARED}/cache"}
    path = run(VICTIM, *words, **cache)["out"].splitlines()[0]
    plant(f"os.mkfifo({path!r}, 0o666)")
    done = run(VICTIM, *words, **cache)
    owners = [each.stat().st_uid for each in (SHARED / "cache").rglob("*")]
    return {"done": done, "owners": sorted({*owners})}


def store() -> dict[str, Any]:
    """The neighbour plants a store, a half of one with a claim, and a link for a file."""
    precious = HOME / "precious"
    precious.write_text("mine")
    os.chown(precious, VICTIM, VICTIM)
    plant(
        f"os.chdir('{SHARED}'); os.mkdir('net.pyprof2', 0o777); "
        "os.makedirs('.new.pyprof2.x.partial', 0o777); "
        f"open('.new.pyprof2.x.partial/.claim', 'w').write('{{}}'); "
        f"os.symlink('{precious}', 'rows.csv')"
    )
    trace = _trace()
    return {
        "there": pyprof2("parse", "-q", trace, "-o", "net.pyprof2"),
        "forced": pyprof2("parse", "-q", "--force", trace, "-o", "net.pyprof2"),
        "new": pyprof2("parse", "-q", trace, "-o", "new.pyprof2"),
        "linked": pyprof2("prof", "-q", trace, "-o", "rows.csv"),
        "linked, forced": pyprof2("prof", "-q", "--force", trace, "-o", "rows.csv"),
        "precious": precious.read_text(),
        "left": sorted(each.name for each in SHARED.iterdir()),
    }


def beside() -> dict[str, Any]:
    """The neighbour plants logs and captures beside a recording of the victim's."""
    plain = pyprof2("prof", "-q", _trace(), "--format", "csv")
    plant(
        f"os.chdir('{SHARED}'); os.mkdir('private', 0o700); os.mkdir('x'); "
        "os.mkfifo('dedicated_log_torch_trace_rank_0_x.log', 0o666); "
        "os.mkfifo('x/dedicated_log_torch_trace_rank_0_x.log', 0o666); "
        "os.mkdir('capture_traces'); os.mkfifo('capture_traces/a.json', 0o666)"
    )
    trace = SHARED / "trace.json"
    trace.write_bytes((HOME / "trace.json").read_bytes())
    os.chown(trace, VICTIM, VICTIM)
    return {"plain": plain, "shared": pyprof2("prof", "-q", str(trace), "--format", "csv")}


def home() -> dict[str, Any]:
    """The victim has no home: no variable, and no entry in the machine's list of users."""
    script = HOME / "train.py"
    script.write_text(
        "import sys, torch\nx = torch.ones(4, 4, requires_grad=True)\n(x @ x).sum().backward()\n"
        "print(x.grad.sum().item())\nsys.exit(3)\n"
    )
    words = ["capture", "--kineto", "-o", f"{SHARED}/net", str(script)]
    nowhere = {"HOME": "", "XDG_CACHE_HOME": "", "PATH": "/usr/bin:/bin"}
    return {
        "plain": run(VICTIM, sys.executable, str(script), **nowhere),
        "captured": pyprof2(*words, **nowhere),
        "init": run(
            VICTIM, sys.executable, "-P", "-c",
            f"import pyprof2; pyprof2.init(); exec(open({str(script)!r}).read())", **nowhere,
        ),
    }  # fmt: skip


SCENES: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    each.__name__: each
    for each in (
        socket_name,
        socket_folder,
        socket_link,
        abandoned_folders,
        cache,
        store,
        beside,
        home,
    )
}

if __name__ == "__main__":
    SHARED.mkdir()
    SHARED.chmod(0o1777)
    HOME.mkdir()
    os.chown(HOME, VICTIM, VICTIM)
    HOME.chmod(0o755)
    sys.stdout.write(json.dumps(SCENES[sys.argv[1]]()))
