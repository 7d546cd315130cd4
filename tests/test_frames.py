"""What a frame of a Python stack says, and whose code it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pyprof2
from pyprof2.frames import (
    frame_line,
    is_own_path,
    is_user_path,
    library_of,
    parse_frame,
    shown_line,
)


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("train.py(12): main", ("train.py", 12)),
        ("/home/me/net.py(3): <lambda>", ("/home/me/net.py", 3)),
        ("train.py(12)", ("train.py", 12)),
        ("a.py(1): f(2): g", ("a.py", 1)),
        ("My Project (2)/train.py(12): main", ("My Project (2)/train.py", 12)),
        ("C:\\me\\train.py(12): main", ("C:\\me\\train.py", 12)),
        ("<string>(1): f", ("<string>", 1)),
        ("two\nlines.py(4): f", ("two\nlines.py", 4)),
        ("<built-in method mm of type object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
        ("train.py(99999999999): main", None),
        ("train.py(-1): main", None),
        ("(12): main", None),
        ("", None),
    ],
)
def test_a_frame_is_a_path_and_a_line(text: str, frame: tuple[str, int] | None) -> None:
    assert parse_frame(text) == frame


@pytest.mark.parametrize(
    "path",
    [
        "train.py", "/home/me/train.py", "src/net/layers.py", "C:\\me\\train.py",
        "/opt/venv/lib/python3.11/site-packages/timm/models/vit.py",
        "/usr/lib/python3/dist-packages/apex/fused.py", "torchvision/models/resnet.py",
        "mytorch/nn.py", "code/train.py", "/home/me/asyncio/train.py", "test_net.py",
        "types_of_nets.py", "transformers/models/bert.py", "/home/me/pyprof2/train.py",
        "/home/me/pyprof2/tests/net.py", "/home/me/torch/train.py", "/home/me/torch/nets/vit.py",
    ],
)  # fmt: skip
def test_code_of_the_user_and_of_packages_is_a_source(path: str) -> None:
    assert is_user_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "torch/nn/modules/module.py", "/opt/site-packages/torch/nn/functional.py",
        "C:\\site-packages\\torch\\nn\\functional.py", "torchgen/model.py", "functorch/x.py",
        "torch/x.py", "/me/pytorch/torch/_dynamo/eval_frame.py", "/me/pytorch/torch/_ops.py",
        "/opt/site-packages/pyprof2/nvtx/ops.py", "pyprof2/nvtx/ops.py", "threading.py",
        "asyncio/events.py", "concurrent/futures/thread.py", "runpy.py",
        "/usr/lib/python3.11/threading.py", "/usr/lib64/python3.9/asyncio/base.py",
        "/opt/conda/lib/python3.12/contextlib.py", "<string>", "<frozen runpy>",
    ],
)  # fmt: skip
def test_torch_pyprof2_and_the_standard_library_are_none(path: str) -> None:
    assert not is_user_path(path)


def test_each_module_and_folder_of_torch_is_no_users() -> None:
    entries = [*Path(torch.__file__).parent.iterdir()]
    own = [path.name for path in entries if path.suffix == ".py"]
    own += [f"{each.parent.name}/x.py" for path in entries for each in path.glob("__init__.py")]

    assert len(own) > 20
    assert not [name for name in own if is_user_path(f"/me/torch/{name}")]


def test_what_a_marked_program_runs_of_ours_is_no_users() -> None:
    """Wherever the package lies, such as in an editable install."""
    program = """
import sys, torch, pyprof2
pyprof2.init()
print(*(each.__file__ for name, each in sys.modules.items() if name.startswith("pyprof2")))
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    root = Path(pyprof2.__file__).parents[1]
    own = [Path(each).relative_to(root) for each in shown.stdout.decode().split()]

    assert len(own) > 20
    # What shows results in a notebook is registered there, and not called.
    idle = {"pyprof2/api/__init__.py", "pyprof2/api/displays.py"}
    assert {str(each) for each in own if is_user_path(f"/me/src/{each}")} == idle


@pytest.mark.parametrize(
    "path",
    [
        # torch.compile: from its cache, wherever that is, and what it only keeps in memory
        "/me/torchinductor_me/mb/cmbpnpd2tkg4mqaftwx5eudgknufiwhrpioqprkvkss4fio2lnwy.py",
        "elsewhere/qy/cqysde2tjluxkvampaal4uobojsogewpy5a4q4cg2whajttmjoet.py",
        "3t/c3tbde32f3okxiuvwbulgheuwor3yiul5lxxxxxxxxxxxxxxxxxxx.py",
        "cmbpnpd2tkg4mqaftwx5eudgknufiwhrpioqprkvkss4fio2lnwy.py",
        "wrappers.py:codegen(call)", "<eval_with_key>.3 from net.py:7 in forward",
        "C:\\cache\\9b74c9897bac770ffc029102a200c5de0a1b2c3d4e5f60718293a4b5c6d7e8f9.py",
        # what dataclasses, attrs and exec make
        "<string>", "<attrs generated init net.Block>", "<decorator-gen-12>",
        # templates of Jinja and Mako, and what these translate them to
        "<template>", "/w/chat.jinja", "/w/page.html", "/me/mako/page.html.py", "base.mako.py",
        "_w_page_html", "memory:0x7f31c2",
    ],
)  # fmt: skip
def test_code_that_a_program_wrote_is_no_source(path: str) -> None:
    assert not is_user_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "train.v2.py", "/usr/local/bin/train", "/me/ipykernel_31/1234567890.py",
        "gen_html.py", "nets/resnet50withmixedprecisionandgradientaccumulation.py",
        "/w/ab/cab.py", "fused.pyx",
    ],
)  # fmt: skip
def test_an_odd_name_does_not_make_code_a_programs(path: str) -> None:
    assert is_user_path(path)


@pytest.mark.parametrize("root", ["/w/net", "/w/net/", "/w", "/"])
def test_what_is_below_the_root_is_the_users_own(root: str) -> None:
    assert is_own_path("/w/net/a.py", root)


@pytest.mark.parametrize("root", ["/w/ne", "/w/other"])
def test_a_root_leaves_out_what_is_not_below_it(root: str) -> None:
    assert not is_own_path("/w/net/a.py", root)


@pytest.mark.parametrize(
    "path",
    [
        "/w/net/.venv/lib/python3.13/site-packages/trainer/loop.py",
        "/w/net/.venv/lib/python3.13/contextlib.py", "/w/net/torch/nn/modules/module.py",
        "/w/net/site-packages/numpy/x.py", "transformers/trainer.py", "<string>",
        "/opt/trainer/loop.py",
    ],
)  # fmt: skip
def test_libraries_are_not_the_users_own_wherever_they_are(path: str) -> None:
    assert not is_own_path(path, "/w/net")


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/w/torch/train.py", "/w/torch"), ("/w/json/train.py", "/w/json"),
        ("/lib/python3/site-packages/mine/a.py", "/lib/python3/site-packages/mine"),
        ("train.py", "/w"), ("nets/net.py", "/w"), ("C:\\w\\a.py", "C:\\w"),
        ("/me/ipykernel_7/1234.py", "/w"), ("cell 3", "/w"), ("/opt/mine/a.py", None),
    ],
)  # fmt: skip
def test_names_of_folders_above_do_not_make_code_a_librarys(path: str, root: str | None) -> None:
    assert is_own_path(path, root)


@pytest.mark.parametrize("path", ["/x/lib/python3.11/site-packages/a/b.py", "timm/models/vit.py"])
def test_without_a_root_what_is_in_no_package_is_the_users_own(path: str) -> None:
    assert not is_own_path(path)


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("/x/site-packages/trainer/loop.py:7", "trainer"), ("/x/dist-packages/six.py:7", "six"),
        ("C:\\x\\site-packages\\trainer\\loop.py:7", "trainer"),
        ("transformers/a/b.py:7", "transformers"),
        ("trainer/loop.py:7", "trainer"), ("loop.py:7", "loop"),
        ("/opt/trainer/loop.py:7", "/opt/trainer"),
        ("/venv/lib/python3/site-packages/a/site-packages/b/c.py:7", "b"),
    ],
)  # fmt: skip
def test_a_library_has_the_name_of_its_package(line: str, library: str) -> None:
    assert library_of(line) == library


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/w/net/a.py:7", "net/a.py:7"), ("/w/net/a/b.py:7", "net/a/b.py:7"), ("a.py:7", "a.py:7"),
        ("/w/.venv/site-packages/trainer/loop.py:7", "trainer/loop.py:7"),
        ("/other/a.py:7", "/other/a.py:7"), ("cell 3:7", "cell 3:7"),
    ],
)  # fmt: skip
def test_lines_are_shown_from_their_root_on(line: str, shown: str) -> None:
    assert shown_line(line, ["/w"]) == shown


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ("train.py(7): main", "train.py:7"), ("<ipython-input-3-8d0f>(2): <module>", "cell 3:2"),
        ("/me/ipykernel_31/1234567890.py(2): f", "/me/ipykernel_31/1234567890.py:2"),
        ("torch/nn/x.py(1): f", None), ("nn.Module: Linear_0", None),
    ],
)  # fmt: skip
def test_a_frame_outside_of_torch_has_a_line(frame: str, line: str | None) -> None:
    assert frame_line(frame) == line
