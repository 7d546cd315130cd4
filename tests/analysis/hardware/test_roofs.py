"""What fast convolutions save: each factor is a count by hand."""

from __future__ import annotations

import pytest

from pyprof2.analysis.hardware.roofs import fast_convolution

CUDNN = "void cudnn::winograd_nonfused::winogradForward{}<float, float>(Params<float, float>)"
MIOPEN = "miopenSp3AsmConv_v21_1_2_gfx9_fp32_{}_stride1.kd"


@pytest.mark.parametrize(
    ("kernel", "params", "factor"),
    [
        # A tile of 4x4 outputs: 16·9 = 144 multiply-adds, or (4+2)² = 36 products.
        pytest.param(CUDNN.format("Data4x4"), "N=1,window=3x3,groups=1", 4, id="F(4x4,3x3)"),
        # 5x5 outputs: 25·25 = 625, or 9² = 81.
        pytest.param(CUDNN.format("Data9x9_5x5"), "window=5x5", 625 / 81, id="F(5x5,5x5)"),
        # 2x2 outputs: 4·9 = 36, or 4² = 16.
        pytest.param(MIOPEN.format("f2x3"), "window=3x3", 36 / 16, id="F(2x2,3x3)"),
        # 3x3 outputs of two taps: 9·4 = 36, or 4² = 16, whatever the filter is cut from.
        pytest.param(MIOPEN.format("f3x2"), "window=3x3", 36 / 16, id="F(3x3,2x2)"),
        pytest.param("volta_scudnn_winograd_128x128_ldg1", "window=3x3", 4, id="no tile: at most"),
        pytest.param("volta_scudnn_winograd_128x128_ldg1", None, 4, id="no window either"),
        # One dimension: 4·3 = 12, or 6.
        pytest.param(CUDNN.format("Data4x4"), "window=1x3", 2, id="one dimension"),
        # 32x32 reals: 32·17 frequencies of 8 FLOPs are 4352; 28² outputs of 2·25 are 39200.
        pytest.param("void fft2d_r2c_32x32<float, 0>(x)", "window=5x5", 39200 / 4352, id="FFT 32"),
        # 16·9·8 = 1152; 14² outputs of 2·9 are 3528.
        pytest.param("void fft2d_c2r_16x16<float, 0>(x)", "window=3x3", 3528 / 1152, id="FFT 16"),
    ],
)
def test_the_factor_is_direct_work_over_the_work_of_the_algorithm(
    kernel: str, params: str | None, factor: float
) -> None:
    saving = fast_convolution(kernel, params)

    assert saving is not None
    assert saving.factor == pytest.approx(factor)


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        pytest.param("volta_sgemm_64x64_nn", "window=3x3", id="a direct product"),
        pytest.param(CUDNN.format("Data4x4"), "window=1x1", id="one tap: nothing to save"),
        pytest.param("void fft2d_r2c_32x32<float>(x)", "window=1x1", id="FFT of one tap"),
        pytest.param("void fft2d_r2c_16x16<float>(x)", "window=31x31", id="filter beyond the tile"),
    ],
)
def test_what_saves_nothing_is_no_fast_convolution(kernel: str, params: str) -> None:
    assert fast_convolution(kernel, params) is None
