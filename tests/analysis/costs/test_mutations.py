"""A mistake in a formula is noticed: each of these turns the tests of the formulas red."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]

MUTATIONS: Final = {
    # name: file, the text as it is, the mistake
    "a product without the factor 2": (
        "matmul.py", "_per_term(a.dtype) * count * multiply_adds", "count * multiply_adds"),
    "a product with two dimensions swapped": (
        "matmul.py", "out = fresh((m, n) if summed", "out = fresh((m, k) if summed"),
    "a bias that is not read": (
        "matmul.py", "read=[a, b, *more] if k else more,", "read=[a, b] if k else more,"),
    "a convolution that forgets a window's dimension": (
        "conv.py", 'per_group, window = weight.shape[1], Size(numel(weight.shape[2:]), "window")',
        'per_group, window = weight.shape[1], Size(numel(weight.shape[2:-1]), "window")'),
    "a convolution with half its padding": (
        "conv.py", "tuple(2 * pad for pad in found)", "tuple(pad for pad in found)"),
    "gradients that ignore the mask": (
        "conv.py", "(wants_x + wants_weight) * each,", "each * 2,"),
    "a causal mask without its diagonal": (
        "attention.py", "return below(upper + rows) - below(upper)",
        "return below(upper + rows - 1) - below(upper - 1)"),
    "a fused backward of four products": (
        "attention.py", "sizes.widths(3, 2)", "sizes.widths(2, 2)"),
    "attention without its logarithms": (
        "attention.py", "written=[out, lse],", "written=[out],"),
    "a normalisation with an operation less": (
        "norm.py", "(7 if training else 2) * _in_batch(x, channels),",
        "(6 if training else 2) * _in_batch(x, channels),"),
    "a softmax with an operation less": (
        "softmax_loss.py", "return _softmax(x, out, 5)", "return _softmax(x, out, 4)"),
    "a loss that reads the whole table": (
        "softmax_loss.py", "read=[fresh((count,), scores.dtype), target, weight],",
        "read=[scores, target, weight],"),
    "a sum that counts its results": (
        "reduce.py", '_ReducedRow(1, 1, 1, 3, "sum", "sum', '_ReducedRow(1, 0, 1, 3, "sum", "sum'),
    "a pool that reads its input again in backward": (
        "pool.py", 'read=[grad, like(grad, "i64")],', 'read=[grad, x, like(grad, "i64")],'),
    "an embedding that reads its whole table": (
        "index.py", "needed = min(rows * row, elements(source))", "needed = elements(source)"),
    "an optimizer that does not write its state": (
        "optimizer.py", "if at != 1 or scaled]", "if at == 0 or scaled]"),
    "a network whose weights get no gradient": (
        "rnn.py", "terms = every * (1 + wants_weights)", "terms = every"),
    "a transform in the wrong logarithm": ("fft.py", "math.log2(length)", "math.log(length)"),
    "an update without its additions": (
        "fbgemm.py", 'Size(found.named, "rows") * Size(width, "width") + 4', "4"),
    "indices that are not read": (
        "index.py", "return with_more(cost, list(indices), [])", "return cost"),
    "an expanded operand read in full": (
        "operands.py", "return min(span, math.prod(dim for dim, stride in pairs if stride))",
        "return count"),
}  # fmt: skip


def copy_of_the_tree(folder: Path) -> Path:
    """Return a tree of links to this one, whose formulas are files of their own."""
    for item in ROOT.iterdir():
        if item.name not in ("analysis", "pyprof2", ".git"):
            (folder / item.name).symlink_to(item)
    for name in ("analysis", "pyprof2"):
        (folder / name).mkdir()
        for item in (ROOT / name).iterdir():
            if item.name not in ("analysis", "costs", "__pycache__"):
                (folder / name / item.name).symlink_to(item.resolve())
    (folder / "pyprof2" / "analysis").symlink_to(folder / "analysis")
    (folder / "analysis" / "costs").mkdir()
    for item in (ROOT / "analysis" / "costs").glob("*.py"):
        (folder / "analysis" / "costs" / item.name).write_text(item.read_text())
    return folder


RUNNER: Final = """
import json, os, sys, tempfile
import hypothesis, pytest, torch, torch.utils.flop_counter, pandas, pyarrow.parquet

def run(tree):
    os.chdir(tree)
    sys.path[:] = [tree, *(path for path in sys.path if path)]
    return pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *FILES])

FILES = [f"tests/analysis/costs/test_{name}.py" for name in ("ops", "conv", "attention")]
assert not any(name.partition(".")[0] in ("pyprof2", "tests") for name in sys.modules)
ends = {}
for name, tree in json.load(sys.stdin).items():
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()  # what is imported above is imported once
        if not child:
            os.dup2(said.fileno(), 1)
            code = run(tree)
            sys.stdout.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        ends[name] = code, said.read()
print(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Return how the tests of formulas end with each mistake: the exit code, and what they say."""
    trees = {"": str(copy_of_the_tree(tmp_path_factory.mktemp("right")))}
    for number, (name, (file, right, wrong)) in enumerate(MUTATIONS.items()):
        path = copy_of_the_tree(tmp_path_factory.mktemp(str(number))) / "analysis" / "costs" / file
        text = path.read_text()
        assert text.count(right) >= 1, f"{name}: the formula has changed: change the mutation too"
        path.write_text(text.replace(right, wrong, 1))
        trees[name] = str(path.parents[2])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER], input=json.dumps(trees), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mistake_in_a_formula_turns_a_test_red(
    name: str, ends: dict[str, tuple[int, str]]
) -> None:
    code, said = ends[name]

    assert ends[""][0] == 0, ends[""][1][-2000:]
    assert code == 1, said[-2000:]
    assert "AssertionError" in said or "assert" in said
