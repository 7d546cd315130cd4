"""Every op reads its inputs and writes its results: the tensors themselves say how many bytes.

The ops run on the device `meta`, so they have shapes and element types but no data.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.analysis.costs import estimate, is_view

torch = pytest.importorskip("torch", reason="the ops are torch's")

from torch.nn import functional as F  # noqa: E402, N812 - it needs torch; as everybody calls it

from tests.analysis.costs.recorder import Recorded, nbytes, record  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable

BF16: Final = torch.bfloat16
I64: Final = torch.int64


def t(*shape: int, d: Any = torch.float32, grad: bool = False) -> Any:
    return torch.empty(shape, dtype=d, device="meta", requires_grad=grad)


def g(*shape: int, d: Any = torch.float32) -> Any:
    return t(*shape, d=d, grad=True)


def i(*shape: int) -> Any:
    return t(*shape, d=I64)


def mask(*shape: int) -> Any:
    return t(*shape, d=torch.bool)


UNARY: Final = """
    abs neg sign sgn ceil floor round trunc square relu sigmoid tanh exp exp2 expm1 log log1p log2
    log10 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh atanh erf erfc
    lgamma digamma logit i0 sinc deg2rad rad2deg angle positive logical_not isnan isinf signbit
    nan_to_num
"""
BINARY: Final = """
    add sub mul div remainder fmod pow floor_divide eq ne lt le gt ge maximum minimum fmax atan2
    hypot logical_and copysign
"""
ACTIVATIONS: Final = """
    relu6 hardtanh hardswish hardsigmoid silu gelu mish elu selu celu softplus hardshrink softshrink
    leaky_relu glu
"""
OPERANDS: Final = {
    "same": lambda: (t(8, 16), t(8, 16)),
    "broadcast": lambda: (t(8, 16), t(16)),
    "both broadcast": lambda: (t(8, 1), t(1, 16)),
    "bf16 and f32": lambda: (t(8, 16, d=BF16), t(8, 16)),
    "i64 and f32": lambda: (i(8, 16), t(8, 16)),
    "i64": lambda: (i(8, 16), i(8, 16)),
    "no dimensions": lambda: (t(8, 16, d=BF16), t()),
}  # fmt: skip

CASES: Final[dict[str, Callable[[], Any]]] = {
    "add a number": lambda: t(8, 16) + 2.0,
    "add a number to whole ones": lambda: i(8, 16) + 2.5,
    "add in place": lambda: t(8, 16).add_(t(16)),
    "mul in place keeps the type": lambda: t(8, 16, d=BF16).mul_(t(8, 16)),
    "addcmul": lambda: torch.addcmul(t(8, 16), t(8, 16), t(16)),
    "addcdiv": lambda: torch.addcdiv(t(8, 16), t(8, 16), t(16)),
    "lerp": lambda: torch.lerp(t(8, 16), t(8, 16), 0.5),
    "where": lambda: torch.where(mask(8, 16), t(8, 16, d=BF16), t(8, 16)),
    "masked_fill": lambda: t(8, 16).masked_fill(mask(16), 0.0),
    "clamp by a tensor": lambda: t(8, 16).clamp(t(16), None),
    "expanded operand": lambda: t(8, 1).expand(8, 16) + t(8, 16),
    "sum": lambda: t(8, 16).sum(),
    "sum of rows": lambda: t(8, 16).sum(1),
    "sum of whole numbers": lambda: t(8, 16, d=torch.int32).sum(0),
    "sum kept": lambda: t(8, 16).sum((0, 1), keepdim=True),
    "sum as f32": lambda: t(8, 16, d=BF16).sum(0, dtype=torch.float32),
    "mean": lambda: t(8, 16).mean(),
    "mean of columns": lambda: t(8, 16).mean(-2),
    "amax": lambda: t(8, 16).amax(0),
    "any": lambda: mask(8, 16).any(),
    "all of rows": lambda: mask(8, 16).all(1),
    "argmax": lambda: t(8, 16).argmax(),
    "argmax of rows": lambda: t(8, 16).argmax(1),
    "var": lambda: t(8, 16).var(1),
    "std": lambda: t(8, 16).std(),
    "var_mean": lambda: torch.var_mean(t(8, 16), 1),
    "logsumexp": lambda: t(8, 16).logsumexp(1),
    "vector norm": lambda: torch.linalg.vector_norm(t(8, 16), dim=1),
    "norm": lambda: torch.linalg.vector_norm(t(8, 16)),
    "prod": lambda: t(8, 16).prod(1),
    "max": lambda: t(8, 16).max(),
    "max of rows": lambda: t(8, 16).max(1),
    "max of two": lambda: torch.max(t(8, 16), t(16)),
    "median": lambda: t(8, 16).median(1),
    "kthvalue": lambda: t(8, 16).kthvalue(2, 1),
    "cumsum": lambda: t(8, 16).cumsum(0),
    "cumsum of whole numbers": lambda: t(8, 16, d=torch.int32).cumsum(0),
    "cummax": lambda: t(8, 16).cummax(0),
    "logcumsumexp": lambda: t(8, 16).logcumsumexp(1),
    "aminmax": lambda: t(8, 16).aminmax(),
    "count_nonzero": lambda: t(8, 16).count_nonzero(),
    "sort": lambda: t(8, 16).sort(1),
    "stable sort": lambda: torch.sort(t(8, 16), stable=True),
    "argsort": lambda: t(8, 16).argsort(),
    "topk": lambda: t(8, 16).topk(3),
    "searchsorted": lambda: torch.searchsorted(t(16), t(8, 16)),
    "bucketize": lambda: torch.bucketize(t(8, 16), t(16)),
    "cat": lambda: torch.cat([t(8, 16), t(4, 16)]),
    "stack": lambda: torch.stack([t(8, 16), t(8, 16)]),
    "clone": lambda: t(8, 16).clone(),
    "contiguous": lambda: t(8, 16).t().contiguous(),
    "cast": lambda: t(8, 16).to(BF16),
    "repeat": lambda: t(8, 16).repeat(2, 3),
    "flip": lambda: t(8, 16).flip(0),
    "roll": lambda: t(8, 16).roll(1, 0),
    "tril": lambda: t(8, 16).tril(),
    "pad": lambda: F.pad(t(8, 16), (1, 2)),
    "reflect": lambda: F.pad(t(2, 3, 8, 8), (1, 1, 2, 2), mode="reflect"),
    "zeros": lambda: torch.zeros(4, 5, device="meta"),
    "full": lambda: torch.full((4, 5), 1.0, device="meta"),
    "arange": lambda: torch.arange(10, device="meta"),
    "arange from, to, by": lambda: torch.arange(0, 10, 3, device="meta"),
    "arange of fractions": lambda: torch.arange(0, 1.0, 0.1, device="meta"),
    "linspace": lambda: torch.linspace(0, 1, 7, device="meta"),
    "dropout": lambda: torch.native_dropout(t(8, 16), 0.1, train=True),
    "softmax": lambda: F.softmax(t(8, 16, d=BF16), -1),
    "softmax as f32": lambda: F.softmax(t(8, 16, d=BF16), -1, dtype=torch.float32),
    "log_softmax": lambda: F.log_softmax(t(8, 16), -1),
    "mse": lambda: F.mse_loss(t(8, 16), t(8, 16)),
    "mse of each": lambda: F.mse_loss(t(8, 16), t(8, 16), reduction="none"),
    "smooth l1": lambda: F.smooth_l1_loss(t(8, 16), t(8, 16)),
    "huber": lambda: F.huber_loss(t(8, 16), t(8, 16)),
    "cross entropy of bits": lambda: F.binary_cross_entropy(t(8, 16), t(8, 16)),
    "with logits": lambda: F.binary_cross_entropy_with_logits(t(8, 16), t(8, 16)),
    "layer norm": lambda: F.layer_norm(t(8, 16, d=BF16), (16,), t(16, d=BF16)),
    "layer norm, f64": lambda: F.layer_norm(t(8, 16, d=torch.float64), (16,)),
    "group norm": lambda: F.group_norm(t(2, 8, 4, 4), 4, t(8), t(8)),
    "rms norm": lambda: F.rms_norm(t(8, 16), (16,), t(16)),
    "max pool": lambda: F.max_pool2d(t(2, 3, 9, 9), 3, 2, 1, return_indices=True),
    "max pool, rounded up": lambda: F.max_pool2d(t(2, 3, 10, 10), 3, 2, 0, ceil_mode=True),
    "max pool of lines": lambda: F.max_pool1d(t(2, 3, 9), 2),
    "max pool of volumes": lambda: F.max_pool3d(t(2, 3, 9, 9, 9), 2),
    "avg pool": lambda: F.avg_pool2d(t(2, 3, 8, 8), 2),
    "avg pool, rounded up": lambda: F.avg_pool2d(t(2, 3, 9, 9), 3, 2, 1, ceil_mode=True),
    "adaptive avg pool": lambda: F.adaptive_avg_pool2d(t(2, 3, 8, 8), (2, 3)),
    "adaptive max pool": lambda: F.adaptive_max_pool2d(t(2, 3, 8, 8), (2, 3)),
    "bilinear": lambda: F.interpolate(t(2, 3, 8, 8), scale_factor=2, mode="bilinear"),
    "nearest": lambda: F.interpolate(t(2, 3, 8, 8), size=(5, 7)),
    "bicubic": lambda: F.interpolate(t(2, 3, 8, 8), size=(5, 7), mode="bicubic"),
    "trilinear": lambda: F.interpolate(t(2, 3, 8, 8, 8), scale_factor=2, mode="trilinear"),
    "grid sample": lambda: F.grid_sample(t(2, 3, 8, 8), t(2, 5, 6, 2), align_corners=False),
    "unfold": lambda: F.unfold(t(2, 3, 8, 8), 3),
    "fold": lambda: F.fold(t(2, 27, 36), 8, 3),
    "pixel shuffle": lambda: F.pixel_shuffle(t(2, 4, 3, 3), 2),
    "mm": lambda: t(8, 16) @ t(16, 4),
    "mm with a view": lambda: t(8, 16) @ t(8, 16).t(),
    "addmm": lambda: torch.addmm(t(16), t(4, 8), t(8, 16)),
    "bmm": lambda: torch.bmm(t(2, 3, 4), t(2, 4, 5)),
    "bmm of one for all": lambda: torch.bmm(t(2, 3, 4), t(1, 4, 5).expand(2, 4, 5)),
    "baddbmm": lambda: torch.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
    "addbmm": lambda: torch.addbmm(t(3, 5), t(2, 3, 4), t(2, 4, 5)),
    "mv": lambda: torch.mv(t(8, 16), t(16)),
    "addmv": lambda: torch.addmv(t(8), t(8, 16), t(16)),
    "dot": lambda: torch.dot(t(16), t(16)),
    "addr": lambda: torch.addr(t(8, 16), t(8), t(16)),
    "conv": lambda: F.conv2d(t(2, 3, 9, 9), t(4, 3, 3, 3), t(4), 2, 1),
    "conv, same": lambda: F.conv1d(t(2, 3, 9), t(4, 3, 3), padding="same"),
    "conv, dilated": lambda: F.conv3d(t(2, 3, 9, 9, 9), t(4, 3, 3, 3, 3), dilation=2),
    "transposed": lambda: F.conv_transpose2d(
        t(2, 4, 5, 5), t(4, 3, 3, 3), stride=2, padding=1, output_padding=1, groups=2
    ),
    "rand": lambda: torch.rand(3, 4, device="meta"),
    "randint": lambda: torch.randint(0, 5, (3, 4), device="meta"),
    "randperm": lambda: torch.randperm(10, device="meta"),
    "multinomial": lambda: torch.multinomial(t(8, 16), 3),
    "fft": lambda: torch.fft.fft(t(8, 16)),
    "rfft": lambda: torch.fft.rfft(t(8, 16)),
    "irfft": lambda: torch.fft.irfft(t(4, 9, d=torch.complex64)),
    "fft of images": lambda: torch.fft.fft2(t(4, 8, d=torch.complex64)),
    "abs of complex numbers": lambda: t(4, 8, d=torch.complex64).abs(),
    "cdist": lambda: torch.cdist(t(3, 4), t(5, 4)),
    "renorm": lambda: torch.renorm(t(8, 16), 2, 0, 1.0),
    "foreach add": lambda: torch._foreach_add([t(8, 16), t(16)], [t(8, 16), t(16)]),
    "foreach sqrt": lambda: torch._foreach_sqrt([t(8, 16)]),
    "lstm cell": lambda: torch.lstm_cell(t(4, 8), [t(4, 6), t(4, 6)], t(24, 8), t(24, 6)),
    "weight norm": lambda: torch._weight_norm(t(8, 16), t(8, 1), 0),
    "cross": lambda: torch.linalg.cross(t(8, 3), t(8, 3)),
    "scaled mm": lambda: torch._scaled_mm(
        t(16, 32, d=torch.float8_e4m3fn), t(16, 32, d=torch.float8_e4m3fn).t(),
        t(), t(), out_dtype=BF16,
    ),
}  # fmt: skip
CASES.update(
    (f"{name}, {dtype}", partial(lambda f, d: f(t(8, 16, d=d)), getattr(torch, name), dtype))
    for name in UNARY.split()
    for dtype in (torch.float32, BF16, I64)
)
CASES.update(
    (f"{name}, {kind}", partial(lambda f, make: f(*make()), getattr(torch, name), make))
    for name in BINARY.split()
    for kind, make in OPERANDS.items()
)
CASES.update(
    (name, partial(lambda f: f(t(8, 16)), getattr(F, name))) for name in ACTIVATIONS.split()
)

BACKWARD: Final[dict[str, Callable[[], Any]]] = {
    **{name: partial(lambda f: f(g(8, 16)), getattr(F, name)) for name in ACTIVATIONS.split()},
    "sigmoid": lambda: torch.sigmoid(g(8, 16)),
    "tanh": lambda: torch.tanh(g(8, 16)),
    "logsigmoid": lambda: F.logsigmoid(g(8, 16)),
    "prelu": lambda: F.prelu(g(8, 16), g(1)),
    "softmax": lambda: F.softmax(g(8, 16, d=BF16), -1),
    "softmax as f32": lambda: F.softmax(g(8, 16, d=BF16), -1, dtype=torch.float32),
    "log_softmax": lambda: F.log_softmax(g(8, 16), -1),
    "group norm": lambda: F.group_norm(g(2, 8, 4, 4), 4, g(8), g(8)),
    "layer norm, no weight": lambda: F.layer_norm(g(8, 16), (16,)),
    "mse": lambda: F.mse_loss(g(8, 16), g(8, 16)),
    "smooth l1": lambda: F.smooth_l1_loss(g(8, 16), t(8, 16)),
    "huber": lambda: F.huber_loss(g(8, 16), t(8, 16)),
    "cross entropy of bits": lambda: F.binary_cross_entropy(g(8, 16), t(8, 16)),
    "with logits": lambda: F.binary_cross_entropy_with_logits(g(8, 16), t(8, 16)),
    "bilinear": lambda: F.interpolate(g(2, 3, 8, 8), scale_factor=2, mode="bilinear"),
    "nearest": lambda: F.interpolate(g(2, 3, 8, 8), size=(5, 7)),
    "bicubic": lambda: F.interpolate(g(2, 3, 8, 8), size=(5, 7), mode="bicubic"),
    "grid sample": lambda: F.grid_sample(g(2, 3, 8, 8), g(2, 5, 6, 2), align_corners=False),
    "unfold": lambda: F.unfold(g(2, 3, 8, 8), 3),
    "embedding": lambda: F.embedding(i(5), g(10, 16)),
    "cat": lambda: torch.cat([g(8, 16), g(8, 16)]),
    "cumsum": lambda: g(8, 16).cumsum(0),
    "prod": lambda: g(8, 16).prod(),
    "std": lambda: g(8, 16).std(1),
    "select": lambda: g(8, 16)[2],
    "slice": lambda: g(8, 16)[2:4],
    "grouped conv": lambda: F.conv2d(g(2, 4, 9, 9), g(6, 2, 3, 3), g(6), 2, 1, groups=2),
    "transposed": lambda: F.conv_transpose2d(g(2, 4, 5, 5), g(4, 3, 3, 3), g(6), 2, groups=2),
    "linear": lambda: F.linear(g(2, 3, 16, d=BF16), g(8, 16, d=BF16), g(8, d=BF16)),
    "bmm": lambda: torch.bmm(g(2, 3, 4), g(2, 4, 5)),
    "cdist": lambda: torch.cdist(g(3, 4), g(5, 4)),
    "dropout": lambda: torch.native_dropout(g(8, 16), 0.1, train=True)[0],
    "rms norm": lambda: F.rms_norm(g(8, 16), (16,), g(16)),
    "weight norm": lambda: torch._weight_norm(g(8, 16), g(8, 1), 0),
    "lstm cell": lambda: torch.lstm_cell(
        g(4, 8), [g(4, 6), g(4, 6)], g(24, 8), g(24, 6)
    )[0],
}  # fmt: skip

ONLY_WRITTEN: Final = {
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::ones_like", "aten::zeros_like",
    "aten::new_zeros", "aten::_local_scalar_dense",
}  # fmt: skip
"""They are given a tensor that they do not read."""


ONCE_EACH: Final = {"aten::convolution_backward"}
"""They read the gradient that they get once for each of the three that they compute."""


def check(recorded: Recorded, *, reads: bool = True) -> None:
    found = estimate(recorded.call)

    assert found.cost is not None, (recorded.call, found)
    assert found.cost.bytes_written == sum(map(nbytes, recorded.results)), recorded.call
    if reads and recorded.call.op not in ONLY_WRITTEN:
        again = 2 * nbytes(recorded.arguments[0]) if recorded.call.op in ONCE_EACH else 0
        read = sum(map(nbytes, recorded.arguments)) + again
        assert found.cost.bytes_read == read, recorded.call


@pytest.mark.parametrize("name", CASES)
def test_an_op_reads_its_inputs_and_writes_its_results(name: str) -> None:
    for recorded in record(CASES[name]):
        if not is_view(recorded.call.op) and "log_sigmoid" not in recorded.call.op:
            check(recorded)


@pytest.mark.parametrize("name", BACKWARD)
def test_a_backward_op_reads_its_inputs_and_writes_its_results(name: str) -> None:
    loss = BACKWARD[name]().sum()

    for recorded in record(loss.backward):
        if not is_view(recorded.call.op):
            check(recorded)


@pytest.mark.parametrize(
    ("function", "read"),
    [
        # grad and places, not the input of the pooling
        pytest.param(lambda: F.max_pool2d(g(1, 1, 4, 4), 2), 4 + 4 * 8, id="max pool"),
        pytest.param(lambda: F.avg_pool2d(g(1, 1, 4, 4), 2), 4, id="avg pool"),
        pytest.param(lambda: F.adaptive_avg_pool2d(g(1, 1, 4, 4), 2), 4, id="adaptive"),
        # one number, the targets, and their weights' sum, not the scores
        pytest.param(lambda: F.nll_loss(g(8, 5), i(8)), 4 + 8 * 8 + 4, id="nll"),
        # grad of one number, input, mean and deviation of 2 rows, weight, not bias
        pytest.param(
            lambda: F.layer_norm(g(2, 8), (8,), g(8), g(8)), 4 + 64 + 16 + 32, id="layer norm"
        ),
        # grad, input, mean, deviation, weight, not the running ones
        pytest.param(
            lambda: F.batch_norm(g(2, 3, 4), t(3), t(3), g(3), g(3), training=True),
            4 + 96 + 3 * 12,
            id="batch norm",
        ),
        # grad of one number and the input, where no gradient of the input is wanted
        pytest.param(lambda: F.conv1d(t(2, 4, 9), g(6, 4, 3)), 4 + 288, id="conv's weight"),
        # grad of one number, q, k, v, result, logarithm and sum of each row; not the seeds
        pytest.param(
            lambda: torch.ops.aten._scaled_dot_product_flash_attention(
                *[g(2, 4, 16, 8, d=BF16)] * 3
            )[0],
            2 + 4 * 2048 + 2 * 512,
            id="flash attention",
        ),
    ],
)
def test_a_backward_op_reads_no_more_than_it_needs(function: Callable[[], Any], read: int) -> None:
    loss = function().sum()

    ops = [one for one in record(loss.backward) if "backward" in one.call.op]

    check(ops[0], reads=False)
    found = estimate(ops[0].call)
    assert found.cost is not None
    assert found.cost.bytes_read == read


@pytest.mark.parametrize(
    ("function", "read", "written"),
    [
        pytest.param(lambda: t(1000, 16)[i(5)], 5 * 64 + 40, 5 * 64, id="index"),
        pytest.param(
            lambda: torch.index_select(t(1000, 16), 0, i(5)), 5 * 64 + 40, 5 * 64, id="select"
        ),
        pytest.param(lambda: t(1000, 16).gather(1, i(8, 3)), 24 * 12, 24 * 4, id="gather"),
        pytest.param(
            lambda: F.embedding(i(4, 2), t(1000, 16)), 8 * (64 + 8), 8 * 64, id="embedding"
        ),
        pytest.param(
            lambda: F.embedding(i(100), t(2, 16)), 2 * 64 + 800, 6400, id="a table of two rows"
        ),
        pytest.param(
            lambda: t(1000, 16).index_put_((i(5),), t(5, 16)), 5 * 64 + 40, 5 * 64, id="put"
        ),
        pytest.param(
            lambda: t(1000, 16).index_put_((i(5),), t(5, 16), accumulate=True),
            10 * 64 + 40, 5 * 64, id="put and add",
        ),
        pytest.param(
            lambda: t(1000, 16).scatter_(1, i(8, 3), 1.0), 24 * 8, 24 * 4, id="scatter a number"
        ),
        pytest.param(
            lambda: t(1000, 16).scatter_add_(1, i(8, 3), t(8, 3)), 24 * 16, 24 * 4, id="add"
        ),
        pytest.param(
            lambda: t(100, 16).index_add(0, i(5), t(5, 16)),
            6400 + 40 + 320, 6400, id="add elsewhere",
        ),
        pytest.param(
            lambda: t(1000, 16).index_copy_(0, i(5), t(5, 16)), 320 + 40, 320, id="copy rows"
        ),
        pytest.param(
            lambda: F.nll_loss(t(8, 5), i(8), reduction="none"), 8 * 12, 8 * 4 + 4, id="nll"
        ),
        pytest.param(
            lambda: F.batch_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), training=True),
            96 + 4 * 12, 96 + 4 * 12, id="batch norm",
        ),
        pytest.param(
            lambda: F.pad(t(4, 16), (-4, 2)), 4 * 12 * 4, 4 * 14 * 4, id="pad and cut"
        ),
        pytest.param(
            lambda: t(16).unfold(0, 4, 2).sum(1), 64, 28, id="windows that overlap"
        ),
        pytest.param(lambda: torch._foreach_mul_([t(8, 16)], 2.0), 512, 512, id="foreach"),
        pytest.param(
            lambda: torch._foreach_copy_([t(8, 16)], [t(8, 16, d=BF16)]), 256, 512, id="cast"
        ),
    ],
)  # fmt: skip
def test_an_op_touches_no_more_than_it_needs(
    function: Callable[[], Any], read: int, written: int
) -> None:
    ops = [one for one in record(function) if not is_view(one.call.op)]

    found = estimate(ops[-1].call)

    assert found.cost is not None
    assert (found.cost.bytes_read, found.cost.bytes_written) == (read, written)
