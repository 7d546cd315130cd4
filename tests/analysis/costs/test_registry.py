from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from pyprof2.analysis import costs
from pyprof2.analysis.costs import (
    Cost,
    Estimate,
    Evidence,
    category_of,
    cost_of,
    estimate,
    has_formula,
    is_composite,
    is_view,
    registered_ops,
    registry,
)
from pyprof2.analysis.costs.operands import numel, tally, tensor
from pyprof2.errors import CostRegistrationError
from pyprof2.signatures import CATEGORIES, DTYPE_BITS, Input, OpCall, Scalar, Tensor

if TYPE_CHECKING:
    from pathlib import Path

MATRIX: Final = Tensor((2, 2), "f32")


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the registry as it was."""
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_a_user_gives_an_op_of_their_own_a_cost_in_five_lines() -> None:
    @cost_of("mylib::scale", category="elementwise")
    def scale(call: OpCall) -> Cost:
        x = tensor(call, 0)
        return tally(numel(x.shape), read=[x], written=[x], dtype=x.dtype)

    found = estimate(OpCall("mylib::scale", (Tensor((3, 4), "bf16"),)))

    assert found == Estimate(Cost(12, 24, 24, "bf16"), "elementwise", "ok")
    assert scale(OpCall("mylib::scale", (MATRIX,))).flops == 4


@pytest.mark.parametrize("names", [("aten::mm",), ("new::op", "new::op")], ids=["taken", "twice"])
def test_an_op_with_a_formula_gets_no_second_one(names: tuple[str, ...]) -> None:
    with pytest.raises(CostRegistrationError, match="registered already"):
        cost_of(*names, category="other")(lambda _call: None)


def test_a_category_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="category gemm: there is none"):
        cost_of("new::op", category="gemm")


def test_a_name_that_ends_in_a_star_covers_all_that_begin_so() -> None:
    cost_of("new::gemm_*", category="matmul")(lambda _call: Cost(1, 2, 3))

    assert estimate(OpCall("new::gemm_a8w8", ())).cost == Cost(1, 2, 3)
    assert category_of("new::gemm_a16") == "matmul"
    assert category_of("new::other") is None


@pytest.mark.parametrize(
    ("call", "status"),
    [
        pytest.param(OpCall("aten::mm", (MATRIX, MATRIX)), "ok", id="all there"),
        pytest.param(OpCall("aten::mm", (MATRIX, None)), "no_shapes", id="no shape"),
        pytest.param(OpCall("aten::mm", ()), "no_shapes", id="nothing"),
        pytest.param(
            OpCall("aten::mm", (MATRIX, Tensor((3, 2), "f32"))), "no_shapes", id="no product"
        ),
        pytest.param(OpCall("never::heard", (MATRIX,)), "no_formula", id="unknown op"),
        pytest.param(OpCall("aten::sum", (MATRIX, None, None, None)), "assumed", id="no dims"),
        pytest.param(OpCall("aten::view", (MATRIX, Scalar([4]))), "ok", id="view"),
    ],
)
def test_the_status_says_what_the_counts_rest_on(call: OpCall, status: str) -> None:
    assert estimate(call).status == status


@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(Cost(5, 3, 4, flops_lo=2), id="flops, at least"),
        pytest.param(Cost(5, 3, 4, flops_hi=9), id="flops, at most"),
        pytest.param(Cost(5, 3, 4, bytes_lo=2), id="bytes, at least"),
        pytest.param(Cost(5, 3, 4, bytes_hi=9), id="bytes, at most"),
    ],
)
def test_counts_between_bounds_are_assumed_even_where_the_formula_says_nothing(
    cost: Cost,
) -> None:
    cost_of("mylib::op", category="other")(lambda _: cost)

    found = estimate(OpCall("mylib::op", ()))

    assert (found.status, found.note[:15]) == ("assumed", "between bounds:")


def test_bounds_that_are_the_value_leave_nothing_open() -> None:
    cost = Cost(5, 3, 4, flops_lo=5, flops_hi=5, bytes_lo=7, bytes_hi=7)
    cost_of("mylib::op", category="other")(lambda _: cost)

    assert estimate(OpCall("mylib::op", ())).status == "ok"


def test_exact_counts_say_what_their_bounds_mean() -> None:
    """Causal: the pairs under the diagonal are what is needed, the others what is the most."""
    heads = Tensor((1, 2, 8, 16), "bf16")
    flags = (Scalar(0.0), Scalar(True), Scalar(False), Scalar(None))  # noqa: FBT003
    causal = OpCall("aten::_scaled_dot_product_flash_attention", (heads, heads, heads, *flags))

    found = estimate(causal)

    assert found.cost is not None
    # Two products of 16 for each of 2 heads' 8·9/2 pairs.
    assert (found.status, found.cost.flops) == ("ok", 4 * 16 * 2 * 36)
    assert found.cost.flops_hi == 4 * 16 * 2 * 64
    assert found.note.startswith("causal")


def test_no_shapes_and_assumed_come_with_the_reason() -> None:
    missing = estimate(OpCall("aten::mm", (MATRIX, None)))
    assumed = estimate(OpCall("aten::sum", (MATRIX, None, None, None)))

    assert (missing.cost, missing.note) == (None, "input 1 has no shape in the recording")
    assert assumed.cost is not None
    assert assumed.note == assumed.cost.assumed != ""


@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(Cost(1, 2, 3, dtype=7), id="a dtype that is no text"),  # type: ignore[arg-type]
        pytest.param(Cost(1, 2, 3, params=["x"]), id="params"),  # type: ignore[arg-type]
        pytest.param(Cost(1, 2, 3, assumed=5), id="a note"),  # type: ignore[arg-type]
        pytest.param(Cost(1, 2.5, 3), id="a count that is no whole number"),  # type: ignore[arg-type]
        pytest.param(Cost(1, 2, 3, flops_lo=5, flops_hi=2), id="bounds the wrong way round"),
        pytest.param(Cost(1, 2, 3, bytes_hi=4), id="a count above its bound"),
    ],
)
def test_what_is_no_cost_gives_no_counts(cost: Cost) -> None:
    cost_of("new::op", category="other")(lambda _call: cost)

    assert estimate(OpCall("new::op", (MATRIX,))).status == "no_shapes"


@pytest.mark.parametrize("name", ["CompiledFunction", "Torch-Compiled Region: 0/0"])
def test_an_op_that_can_have_no_formula_says_why(name: str) -> None:
    found = estimate(OpCall(name, (MATRIX,)))

    assert (found.status, found.cost) == ("no_formula", None)
    assert "compiled" in found.note


def test_without_element_types_flops_are_known_and_bytes_are_not() -> None:
    call = OpCall("aten::mm", (Tensor((3, 4)), Tensor((4, 5))))

    found = estimate(call)

    assert (found.status, found.note) == ("assumed", "bytes unknown: no element types recorded")
    assert found.cost is not None
    assert (found.cost.flops, found.cost.bytes) == (120, None)


def test_a_copy_without_element_types_has_no_counts_at_all() -> None:
    found = estimate(OpCall("aten::clone", (Tensor((3, 4)), None)))

    assert (found.status, found.note) == ("no_shapes", "no element types recorded")


def test_a_view_costs_nothing() -> None:
    found = estimate(OpCall("aten::transpose", (MATRIX, Scalar(0), Scalar(1))))

    assert found.cost == Cost(0, 0, 0)


def test_counts_beyond_64_bits_are_no_counts() -> None:
    huge = Tensor((2**40, 2**40), "f32")

    found = estimate(OpCall("aten::mm", (huge, huge)))

    assert (found.status, found.note) == ("no_shapes", "the counts do not fit into 64 bits")


@pytest.mark.parametrize("name", ["aten::add.Tensor", "aten::add.out", "aten::add"])
def test_overloads_share_the_formula(name: str) -> None:
    found = estimate(OpCall(name, (MATRIX, MATRIX, Scalar(1))))

    assert found.cost is not None
    assert (found.cost.flops, found.cost.bytes) == (4, 48)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("aten::mm", "matmul"), ("aten::miopen_convolution", "conv"),
        ("flash_attn::_flash_attn_forward", "attention"), ("vllm::moe_forward", "matmul"),
        ("vllm::unified_attention_with_output", "attention"), ("nccl:all_to_all", "comm"),
        ("symm_mem::multimem_all_reduce_", "comm"), ("aten::_foreach_lerp_", "optimizer"),
        ("triton_poi_fused_add_0", "elementwise"), ("triton_red_fused_sum_1", "reduce"),
        ("triton_tem_fused_addmm_3", "matmul"), ("aten::histc", "reduce"),
        ("aten::unique_dim", "index"), ("aten::as_strided", None), ("aten::transpose", None),
        ("MyBackward0", None), ("aiter::gemm_a16w16_asm", "matmul"),
    ],
)  # fmt: skip
def test_ops_have_a_category_with_and_without_a_formula(name: str, category: str | None) -> None:
    assert category_of(name) == category


def test_every_category_is_one_of_the_contract() -> None:
    found = {category_of(name) for name in registered_ops()}

    assert found <= set(CATEGORIES)


def test_names_without_a_formula_stand_in_one_category_that_there_is() -> None:
    categories = registry._NAMED["categories"]
    names = [name for ops in categories.values() for name in ops.split()]

    assert set(categories) <= set(CATEGORIES)
    assert len(names) == len(set(names)) > 300
    assert [name for name in names if "*" not in name and registry._find(name)] == []


def test_composites_and_views_are_told_apart() -> None:
    assert is_composite("aten::linear")
    assert not is_composite("aten::addmm")
    assert is_view("aten::t")
    assert not is_view("aten::contiguous")
    assert has_formula("aten::t")
    assert has_formula("aten::linear")


def _shapes() -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(-1, 9) | st.just(2**33), max_size=5).map(tuple)


_dtypes: Final = st.sampled_from([None, "nonsense", *DTYPE_BITS])
_tensors: Final = st.builds(Tensor, _shapes(), _dtypes, st.none() | _shapes())
_values: Final[st.SearchStrategy[Any]] = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(), st.text(max_size=4),
    st.lists(st.integers(-3, 9) | st.booleans() | st.text(max_size=2), max_size=4),
    st.just("[True, False"), st.just("[1, 2]"), st.dictionaries(st.text(max_size=3), st.none()),
)  # fmt: skip
_inputs: Final[st.SearchStrategy[Input]] = st.one_of(
    st.none(), _tensors, st.lists(_tensors, max_size=3).map(tuple), st.builds(Scalar, _values)
)


@settings(max_examples=20)
@given(st.lists(_inputs, max_size=16).map(tuple), _inputs, st.none() | _tensors)
def test_no_input_makes_a_formula_raise(
    inputs: tuple[Input, ...], more: Input, output: Tensor | None
) -> None:
    for name in registered_ops():
        call = OpCall(name.rstrip("*"), inputs)

        forward = OpCall("aten::convolution", (more, *inputs))

        found = estimate(
            call,
            Evidence(forward, output, elements=(output.dtype,) if output and output.dtype else ()),
        )

        assert found.status in ("ok", "assumed", "no_shapes")
        assert (found.cost is None) == (found.status == "no_shapes")
        if found.cost is not None:
            _check(found.cost, name)


def _check(cost: Cost, name: str) -> None:
    """A value lies within its bounds, and is no negative number."""
    flops = [n for n in (cost.flops_lo, cost.flops, cost.flops_hi) if n is not None]
    traffic = [n for n in (cost.bytes_lo, cost.bytes, cost.bytes_hi) if n is not None]

    assert flops == sorted(flops), (name, cost)
    assert traffic == sorted(traffic), (name, cost)
    assert min([*flops, *traffic]) >= 0, (name, cost)
    assert not cost.assumed or cost.flops_lo is not None or cost.bytes_lo is not None or (
        cost.bytes is None
    ), (name, cost)  # fmt: skip


def test_importing_the_formulas_is_light(tmp_path: Path) -> None:
    heavy = ["numpy", "pandas", "pyarrow", "torch", "nvtx", "sqlalchemy"]
    code = (
        "import sys, pyprof2.analysis.costs as c; c.registered_ops();"
        f"print([m for m in {heavy} if m in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={"PYTHONPATH": str(costs.__file__).split("/pyprof2/analysis")[0], "PATH": ""},
    )  # fmt: skip

    assert done.stdout.strip() == "[]"
