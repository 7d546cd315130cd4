"""Small files that inflate to a lot are read, or refused in one line, in little memory."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from pyprof2.cli import main
from pyprof2.store.folder import read_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in Linux's way"),
]

ROOT: Final = Path(__file__).resolve().parent.parent
INFLATED_BYTES: Final = 200_000_000
MEMORY_MAX: Final = 400_000_000

# Parses, and says what the process held at most: its parent's memory is not counted.
PARSE: Final = """
import resource, sys
from pyprof2.cli import main
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
code = main(["parse", "-q", sys.argv[1], "-o", sys.argv[2]])
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(int(line.split()[1]) * 1024)
sys.exit(code)
"""

HEAD: Final = b'{"schemaVersion": 1, "traceEvents": ['
TAIL: Final = b'{}], "distributedInfo": {"rank": 0}}'
EVENT: Final = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":2,"args":'


@pytest.mark.parametrize(
    ("head", "filling", "tail"),
    [
        pytest.param(b"", b" ", b"", id="spaces"),
        pytest.param(HEAD, b" ", TAIL, id="spaces among the events"),
        pytest.param(b'{"a": "', b"a", b'"}', id="a string"),
        pytest.param(b'{"a": "', b'\\"', b'"}', id="a string of quotes"),
        pytest.param(HEAD + b'{"ph":"X","name":"', b"a", b'"},' + TAIL, id="a name"),
        pytest.param(HEAD + EVENT + b'{"Input Dims":[', b"[],", b"[]]}}," + TAIL, id="shapes"),
        pytest.param(HEAD, b"{},", TAIL, id="events of nothing"),
        pytest.param(HEAD, b"[],", TAIL, id="events that are lists"),
        pytest.param(HEAD, b'{"ph":', TAIL, id="events that are not closed"),
        pytest.param(HEAD, b'"', TAIL, id="quotes"),
        pytest.param(b"", b"[", b"", id="nested lists"),
        pytest.param(HEAD + EVENT, b'{"a":', TAIL, id="nested arguments"),
        pytest.param(HEAD + b'{}], "x": [', b"[],", b"[]]}", id="metadata"),
    ],
)
def test_a_gzip_bomb_does_not_fill_the_memory(
    tmp_path: Path, head: bytes, filling: bytes, tail: bytes
) -> None:
    bomb, store = tmp_path / "bomb.json.gz", tmp_path / "store"
    block = filling * (1_000_000 // len(filling))
    # Members of a gzip file follow one another; this one is made once.
    middle = gzip.compress(block) * (INFLATED_BYTES // len(block))
    bomb.write_bytes(gzip.compress(head) + middle + gzip.compress(tail))
    assert bomb.stat().st_size < INFLATED_BYTES / 100

    done = subprocess.run(
        [sys.executable, "-c", PARSE, bomb, store],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip

    assert done.returncode == (0 if store.exists() else 1)
    assert done.stderr.count("\n") == done.returncode
    assert done.returncode == 0 or done.stderr.startswith(f"pyprof2: {bomb}: ")
    assert int(done.stdout.split()[-1]) < MEMORY_MAX
    assert {path.name for path in tmp_path.iterdir()} <= {"bomb.json.gz", "store"}


HALF_A_MILLION: Final = 500_000


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(
            HEAD + b'{"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":2}'
            + b',{"ph":1' * HALF_A_MILLION + b"]}",
            id="events that are not closed",
        ),
    ],
)  # fmt: skip
def test_many_small_parts_take_time_in_proportion(tmp_path: Path, content: bytes) -> None:
    bomb = tmp_path / "bomb.json"
    bomb.write_bytes(content)

    done = _parse(bomb, tmp_path / "store", seconds=9)

    assert (done.returncode, done.stderr) == (0, "")


MANY: Final = 300_000


@pytest.mark.parametrize(
    ("head", "member", "tail", "said"),
    [
        pytest.param(HEAD + EVENT + b"{}},", b" ", TAIL, None, id="spaces among the events"),
        pytest.param(HEAD + b'{"name":"', b"a", b"", None, id="a name that does not end"),
        pytest.param(HEAD + b'{}],"x":"', b"a", b'"}', None, id="metadata"),
        pytest.param(b'{"a":"', b"a", b"", "no traceEvents in this JSON file", id="no events"),
        pytest.param(b"", b"", b"", "not a gzip file, or a damaged one", id="nothing at all"),
    ],
)
def test_a_member_of_a_gzip_file_for_each_byte_takes_little_time(
    tmp_path: Path, head: bytes, member: bytes, tail: bytes, said: str | None
) -> None:
    bomb = tmp_path / "bomb.json"
    bomb.write_bytes(gzip.compress(head) + gzip.compress(member) * MANY + gzip.compress(tail))

    # 2 s, start and imports included; with a copy of what follows for each member 4 and 20 s.
    done = _parse(bomb, tmp_path / "store", seconds=5)

    assert done.stderr.startswith(f"pyprof2: {bomb}: {said}" if said else "")
    assert (done.returncode, done.stderr.count("\n")) == ((1, 1) if said else (0, 0))


def _parse(bomb: Path, store: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run `parse` in a process that may take so much CPU time."""
    return subprocess.run(
        [sys.executable, "-c", PARSE, bomb, store],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)),
    )  # fmt: skip


# Shows a store as a command does, and says the CPU time that it took, start and imports included.
SHOW: Final = """
import sys, time
from pyprof2.cli import main
code = main(sys.argv[1:])
print(time.process_time(), file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("command", ["check", "prof"])
def test_very_many_listed_devices_do_not_take_long(tmp_path: Path, command: str) -> None:
    listed = b",".join(b'{"id":%d}' % number for number in range(75_000))
    kernel = b'{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2,"args":{"device":7,"stream":7}}'
    text = b'{"deviceProperties":[' + listed + b'],"traceEvents":[' + kernel + b"]}"
    trace, store = tmp_path / "trace.json", tmp_path / "trace.pyprof2"
    trace.write_bytes(text)
    assert main(["parse", "-q", str(trace), "-o", str(store)]) == 0
    assert read_table(store, "devices").num_rows == 75_000

    shown = subprocess.run(
        [sys.executable, "-c", SHOW, command, str(store)],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert float(shown.stderr.splitlines()[-1]) < 20  # 2 s; with a search for each, minutes
