"""Damage the pages of exports of Nsight Systems, by seed: what no program would write.

A file of SQLite is a graph: pages of a tree name those below them, long values go on from page to
page, free pages are a list of lists, and the first page says where each table begins. Here the
arrows lead back, into one another, or out of the file, and counts and lengths are too large.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.mutate_trace import Mutant
from tests.nsight_exports import STRINGS, Export

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE: Final = 512
"""Small pages make high trees of few rows."""

_INNER_INDEX, _INNER, _LEAF_INDEX, _LEAF = 0x02, 0x05, 0x0A, 0x0D
_KINDS: Final = (_INNER_INDEX, _INNER, _LEAF_INDEX, _LEAF)
_ODD: Final = (0, 1, 2, 2**31 - 1, 2**31, 2**32 - 1)
_FREE_AT: Final = 32
"""Where the first page says which page is the first of the free ones, and how many there are."""
_TEXTS: Final = ("aten::mm", "void f<float>(int)", "é" * 700, "a" * 3000, "b" * 20_000)


def read_bases(_: Sequence[Path] = ()) -> list[bytes]:
    """Return the export to damage: with trees of three levels, long texts, and free pages."""
    export = Export().gpu()
    for number in range(600):
        at = 1000 * number
        export.launched(_TEXTS[number % 5], at + 10, number)
        text = f"aten::mm, seq = {number}, op_id = {number}, sizes = [[2, 3], [3, 4]]"
        export.range(text, at, at + 50, registered=number % 2 == 0)
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(Path(folder, "pages.sqlite"))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE}")
            connection.execute("VACUUM")
            connection.execute(f"CREATE INDEX of_values ON {STRINGS} (value)")
            connection.execute("CREATE TABLE gone (x)")
            connection.executemany("INSERT INTO gone VALUES (?)", [("x" * 400,)] * 300)
            connection.commit()
            connection.execute("DROP TABLE gone")
            connection.commit()
        return [path.read_bytes()]


def mutate(seed: int, bases: Sequence[bytes]) -> Mutant:
    """Return the mutant of that number."""
    rng = random.Random(seed)  # noqa: S311
    content = bytearray(rng.choice(bases))
    damage = []
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        change = rng.choice(_CHANGES)
        change(rng, content)
        damage.append(change.__name__)
    return Mutant(bytes(content), tuple(damage))


def _head(page: int) -> int:
    """Return where the head of a page begins: behind that of the file on the first one."""
    return (page - 1) * PAGE + (100 if page == 1 else 0)


def _pages(content: bytes | bytearray, kinds: Sequence[int]) -> list[int]:
    """Return the pages of a tree of some kinds; a page of a long text may look like one."""
    return [n for n in range(1, len(content) // PAGE + 1) if content[_head(n)] in kinds]


def _cells(content: bytes | bytearray, page: int) -> list[int]:
    """Return where the cells of a page begin, as far as they are inside of it."""
    head = _head(page)
    width = 12 if content[head] in (_INNER_INDEX, _INNER) else 8
    count = min(int.from_bytes(content[head + 3 : head + 5], "big"), PAGE // 2)
    places = (head + width + 2 * at for at in range(count))
    offsets = [int.from_bytes(content[place : place + 2], "big") for place in places]
    return [(page - 1) * PAGE + offset for offset in offsets if offset < PAGE - 4]


def _put(content: bytearray, at: int, number: int, size: int = 4) -> None:
    content[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "big")


def _a_page(rng: random.Random, content: bytes | bytearray) -> int:
    """Return a page, mostly inside of the file."""
    last = len(content) // PAGE
    return rng.choice((rng.randint(1, last), rng.randint(1, last), last + 1, *_ODD))


def lead_elsewhere(rng: random.Random, content: bytearray) -> None:
    """Let a page of a tree lead to itself, to another one, or out of the file."""
    for page in rng.sample(inner := _pages(content, (_INNER, _INNER_INDEX)), min(3, len(inner))):
        last_child = _head(page) + 8
        at = rng.choice([last_child, *_cells(content, page)])
        _put(content, at, rng.choice((page, rng.choice(inner), _a_page(rng, content))))


def lead_all_to_one(rng: random.Random, content: bytearray) -> None:
    """Let all children of a page be one: of many levels such pages have very many rows."""
    inner = _pages(content, (_INNER,))
    for page in inner if rng.random() < 0.5 else inner[:1]:
        child = rng.choice((*inner, _a_page(rng, content)))
        for at in [_head(page) + 8, *_cells(content, page)]:
            _put(content, at, child)


def make_ladder(rng: random.Random, content: bytearray) -> None:
    """Let each of some pages lead to the next one 40 times, and a table begin at the first."""
    pages = rng.sample(range(2, len(content) // PAGE), rng.choice((1, 3, 8, 19, 30)))
    leaf = rng.choice((_a_page(rng, content), *_pages(content, (_LEAF,))))
    root = rng.choice([1, *_pages(content, (_INNER,))])
    for page, child in zip([root, *pages], [*pages, leaf], strict=True):
        write_rung(content, page, child)


def write_rung(content: bytearray, page: int, child: int, size: int = PAGE) -> None:
    """Make an inner page whose 40 cells, and its last child, are one page."""
    count, base = 40, 100 if page == 1 else 0
    first, below = base + 12 + 2 * count, child.to_bytes(4, "big")
    places = b"".join((first + 5 * at).to_bytes(2, "big") for at in range(count))
    head = bytes([_INNER, 0, 0, 0, count]) + first.to_bytes(2, "big") + b"\x00" + below
    rung = head + places + (below + b"\x01") * count
    at = (page - 1) * size
    content[at + base : at + size] = rung.ljust(size - base, b"\x00")


def change_kind(rng: random.Random, content: bytearray) -> None:
    """Let a page be of another kind."""
    page = rng.choice(_pages(content, _KINDS))
    content[_head(page)] = rng.choice((*_KINDS, 0, 255))


def change_count(rng: random.Random, content: bytearray) -> None:
    """Let a page have another number of cells, or another start of them."""
    page = rng.choice(_pages(content, _KINDS))
    at = _head(page) + rng.choice((1, 3, 3, 5))
    _put(content, at, rng.choice((0, 1, 255, 4096, 65_535)), 2)


def share_cells(rng: random.Random, content: bytearray) -> None:
    """Let all cells of a page be one, or one of them begin anywhere."""
    page = rng.choice(_pages(content, _KINDS))
    head = _head(page)
    first = head + (12 if content[head] in (_INNER, _INNER_INDEX) else 8)
    count = min(int.from_bytes(content[head + 3 : head + 5], "big"), 200)
    target = rng.choice((rng.randrange(PAGE), 0, PAGE - 1, 65_535))
    for at in range(count if rng.random() < 0.5 else 1):
        if first + 2 * at + 2 <= page * PAGE:
            _put(content, first + 2 * at, target, 2)


def lengthen(rng: random.Random, content: bytearray) -> None:
    """Let a value be of another length: the number is written in up to nine bytes."""
    leaves = _pages(content, (_LEAF, _LEAF_INDEX))
    length = rng.choice((b"\x00", b"\x7f", b"\xff\x7f", b"\xff\xff\xff\x7f", b"\xff" * 9))
    for page in rng.sample(leaves, min(len(leaves), rng.choice((1, 5)))):
        for at in _cells(content, page)[: rng.choice((1, 50))]:
            content[at : at + len(length)] = length


def loop_overflow(rng: random.Random, content: bytearray) -> None:
    """Let pages on which long texts go on lead back, into one another, or out of the file."""
    trees = set(_pages(content, _KINDS))
    others = [n for n in range(2, len(content) // PAGE + 1) if n not in trees]
    for page in rng.sample(others, min(len(others), rng.choice((1, 10, len(others))))):
        _put(content, (page - 1) * PAGE, rng.choice((page, rng.choice(others), *_ODD)))


def loop_free_pages(rng: random.Random, content: bytearray) -> None:
    """Let the list of free pages lead back, or be longer than the file."""
    first = int.from_bytes(content[_FREE_AT : _FREE_AT + 4], "big")
    choice = rng.randrange(3)
    if choice == 0 or not 1 < first <= len(content) // PAGE:
        _put(content, _FREE_AT, _a_page(rng, content))
        _put(content, _FREE_AT + 4, rng.choice(_ODD))
    elif choice == 1:
        _put(content, (first - 1) * PAGE, rng.choice((first, 1, _a_page(rng, content))))
    else:
        _put(content, (first - 1) * PAGE + 4, rng.choice((PAGE, *_ODD)))


def change_header(rng: random.Random, content: bytearray) -> None:
    """Change the size of pages, the reserved space, the format, the encoding, or the count."""
    at, size, numbers = rng.choice(
        (
            (16, 2, (0, 1, 256, 1024, 65_535)), (20, 1, (1, 33, 255)), (18, 1, (2, 3, 255)),
            (28, 4, _ODD), (44, 4, (0, 1, 5, 2**31)), (52, 4, (0, 1, 7)), (56, 4, (0, 2, 3, 9)),
        )
    )  # fmt: skip
    _put(content, at, rng.choice(numbers), size)


def swap_trees(rng: random.Random, content: bytearray) -> None:
    """Put the first page of a tree where another one is, or over it."""
    one, other = (rng.choice(_pages(content, _KINDS)[1:]) for _ in range(2))
    a, b = slice((one - 1) * PAGE, one * PAGE), slice((other - 1) * PAGE, other * PAGE)
    if rng.random() < 0.5:
        content[a], content[b] = content[b], content[a]
    else:
        content[a] = content[b]


_CHANGES: Final[tuple[Callable[[random.Random, bytearray], Any], ...]] = (
    lead_elsewhere, lead_elsewhere, lead_all_to_one, make_ladder, change_kind, change_count,
    share_cells, lengthen, loop_overflow, loop_overflow, loop_free_pages, change_header, swap_trees,
)  # fmt: skip
