"""Entry points of Skyline and DeepView: their rules, and errors that name file and line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")

from pyprof2.capture.entry_points import EntryPointError, load_entry_point  # noqa: E402
from pyprof2.capture.on_cpu import OnCpu  # noqa: E402

GOOD = """\
import torch

calls = []

def skyline_model_provider():
    calls.append("model")
    return torch.nn.Linear(4, 2)

def skyline_input_provider(batch_size=16):
    calls.append("inputs")
    return (torch.ones(batch_size, 4),)

def skyline_iteration_provider(model):
    calls.append("iteration")
    def iteration(*inputs):
        calls.append(tuple(inputs[0].shape))
        model(*inputs).sum().backward()
    return iteration
"""


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(folder: Path, text: str, name: str = "the_entry.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def run(path: Path, batch: int | None = None) -> None:
    entry = load_entry_point(path)
    _, iteration, inputs = entry.build(batch or entry.batch_size)
    entry.run(iteration, inputs)


def test_providers_are_called_once_in_order_and_the_iteration_with_the_inputs(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, GOOD)
    run(path, 3)

    module = sys.modules["the_entry"]
    assert module.calls == ["model", "inputs", "iteration", (3, 4)]
    assert load_entry_point(path).batch_size == 16


@pytest.mark.parametrize("mark", [".git", "setup.py", "pyproject.toml", None])
def test_the_root_of_the_project_is_next_on_the_path(
    mark: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it is the current folder; a project around the nearest one does not count."""
    root = tmp_path / "outer" / "project"
    (root / "sky" / "deep").mkdir(parents=True)
    (root / "models_of_mine.py").write_text("def fail():\n    raise ValueError('no model')\n")
    monkeypatch.chdir(root if mark is None else tmp_path)
    if mark is not None:
        (root / mark).touch()
        (tmp_path / "outer" / "setup.py").touch()
    text = GOOD.replace("import torch\n", "import models_of_mine, torch\n", 1)
    entry = load_entry_point(written(root / "sky" / "deep", text))

    assert sys.path[:2] == [str(root / "sky" / "deep"), str(root)]
    # Code of the project is the user's own, where an error of it is named.
    model = text.replace('    calls.append("model")', "    models_of_mine.fail()")
    with pytest.raises(EntryPointError) as failed:
        load_entry_point(written(entry.path.parent, model, "failing.py")).build(1)
    assert "models_of_mine.py:2: ValueError: no model" in str(failed.value)


def test_the_file_is_a_module_of_its_own_whose_folder_comes_first(tmp_path: Path) -> None:
    written(tmp_path, "VALUE = 7\n", "sibling.py")
    head = (
        "import os, sys, sibling\nseen = __name__, __file__, sys.argv, sys.path[0], os.getcwd()\n"
    )
    path = written(tmp_path, head + GOOD)
    here = __import__("os").getcwd()
    load_entry_point(path)

    seen = sys.modules["the_entry"].seen
    assert seen == ("the_entry", str(path), [str(path)], str(tmp_path), here)


def test_a_name_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    owner = sys.modules["json"] if "json" in sys.modules else __import__("json")
    load_entry_point(written(tmp_path, GOOD, "json.py"))

    assert sys.modules["json"] is owner


@pytest.mark.parametrize(
    "signature",
    [
        "(batch_size: int = 16)",
        "(\n    batch_size: int = 16,\n) -> tuple[torch.Tensor, ...]",
        "(*, batch_size=16)",
    ],
)
def test_any_way_to_write_the_default_is_found(signature: str, tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("(batch_size=16)", signature))

    assert load_entry_point(path).batch_size == 16
    run(path)


def test_names_of_deepview_are_the_same(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("skyline_", "deepview_"))

    assert load_entry_point(path).prefix == "deepview"


BOTH = GOOD + GOOD.replace("skyline_", "deepview_")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(batch_size=16)", "()", r"the_entry.py:9: skyline_input_provider\(\): it takes one"),
        ("(batch_size=16)", "(size=16)", r":9: skyline_input_provider\(size=16\): it takes one"),
        ("(batch_size=16)", "(batch_size)", ":9: .*whose default is a number of 1 or more"),
        ("(batch_size=16)", "(batch_size='x')", ":9: .*whose default is a number of 1 or more"),
        ("(batch_size=16)", "(batch_size=True)", ":9: .*whose default is a number of 1 or more"),
        ("(batch_size=16)", "(batch_size=0)", ":9: .*whose default is a number of 1 or more"),
        ("(batch_size=16)", "(batch_size=1, n=2)", ":9: .*it takes one parameter, batch_size"),
        ("model_provider()", "model_provider(x)", ":5: .* has 1 parameters; it takes no parameter"),
        ("provider(model)", "provider()", ":13: .*has 0 parameters; it takes one parameter, the"),
        ("def skyline_model", "def other_model", ":9: the file has no skyline_model_provider"),
        (GOOD, "x = 1\n", r":1: the file has no skyline_model_provider, .*nor those of deepview"),
        (GOOD, BOTH, ":5: has skyline_model_provider here and deepview_.* at line 23: keep those"),
        ("import torch\n", "import torch; x = (\n", ":1: SyntaxError: '\\(' was never closed"),
        ("import torch\n", "import no_such_thing\n", ":1: ModuleNotFoundError: No module named"),
        ("import torch\n", "import torch, sys; sys.exit(3)\n", r":1: the code ended .*code 3\)"),
        ("(torch.ones(batch_size, 4),)", "torch.ones(batch_size, 4)", ":9: .*returns a Tensor; "),
        ("(torch.ones(batch_size, 4),)", "{'x': 1}", ":9: .*returns a dict; the iteration is"),
        ("(torch.ones(batch_size, 4),)", "None", ":9: .*returns nothing; the iteration is"),
        ("torch.nn.Linear(4, 2)", "3", ":5: .*returns an int, which is no model"),
        ("    return iteration\n", "", ":13: .*returns nothing; return the function that runs"),
        ("(batch_size, 4)", "(batch_size, 5)", ":17: RuntimeError: mat1 and mat2 shapes cannot"),
        ("4),)", "4), 1)", r":17: TypeError: .*positional argument.*input provider returns 2"),
        ("sum()", "sum() / (1 // 0)", ":17: ZeroDivisionError: "),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_one_line_with_file_and_line(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in GOOD
    with pytest.raises(EntryPointError, match=message) as found:
        run(written(tmp_path, GOOD.replace(old, new)))

    assert "\n" not in str(found.value)
    assert str(found.value).startswith(str(tmp_path / "the_entry.py"))
    assert not found.value.out_of_memory


def test_an_error_in_another_file_of_the_user_names_that_file(tmp_path: Path) -> None:
    written(
        tmp_path, "import torch\n\ndef net():\n    return torch.ones(2) @ torch.ones(3)\n", "a.py"
    )
    text = GOOD.replace("torch.nn.Linear(4, 2)", "a.net()").replace(
        "import torch", "import torch, a"
    )
    with pytest.raises(EntryPointError, match=r"/a\.py:4: RuntimeError: "):
        run(written(tmp_path, text))


@pytest.mark.parametrize(
    "code",
    ["torch.empty(1 << 60)", "(_ for _ in ()).throw(MemoryError('no room'))"],
)
def test_a_lack_of_memory_is_told_apart(code: str, tmp_path: Path) -> None:
    with pytest.raises(EntryPointError, match=r"the_entry.py:17: ") as found:
        run(written(tmp_path, GOOD.replace("model(*inputs).sum().backward()", code)))

    assert found.value.out_of_memory


# -- the CPU in place of a GPU ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "torch.nn.Linear(2, 2).cuda().weight",
        "torch.nn.Linear(2, 2).cuda(0).weight",
        "torch.nn.Linear(2, 2).to('cuda:0').weight",
        "torch.nn.Linear(2, 2).to(device=torch.device('cuda', 1)).weight",
        "torch.nn.Linear(2, 2, device='cuda').weight",
        "torch.nn.LSTM(2, 2).cuda()._flat_weights[0]",
        "torch.ones(2).cuda(non_blocking=True)",
        "torch.ones(2).to('cuda', torch.float16)",
        "torch.ones(2).to(0)",
        "torch.ones(2).to(device=0)",
        "torch.tensor([1], device='cuda')",
        "torch.randint(0, 2, (2,), device=torch.device('cuda:1'))",
        "torch.ones(2).new_zeros(3, device='cuda')",
        "torch.zeros(2, pin_memory=True)",
        "torch.ones(2).pin_memory()",
        "torch.ones(2).type('torch.cuda.FloatTensor')",
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="here the GPU is what is asked for")
def test_what_asks_for_a_gpu_gets_the_cpu(code: str) -> None:
    with OnCpu("/nowhere") as mode:
        found = eval(code)  # noqa: S307 -- of this very test
        torch.cuda.synchronize()
        assert not torch.cuda.is_available()

    assert found.device.type == "cpu"
    assert mode.count
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.synchronize()


def test_what_asks_for_the_cpu_is_left_alone() -> None:
    with OnCpu("/nowhere") as mode:
        x = torch.ones(2, device="cpu").to(torch.float64).to("cpu").new_zeros(3)
        assert x.sum(0).max(-1)[0] == 0

    assert mode.count == 0


def test_the_first_line_that_asks_for_a_gpu_is_known() -> None:
    with OnCpu(str(__import__("pathlib").Path(__file__).parent)) as mode:
        torch.ones(1, device="cuda")
        line = sys._getframe().f_lineno - 1
        torch.ones(1, device="cuda")

    assert mode.first == f"{__file__}:{line}"
    assert mode.count == 2
