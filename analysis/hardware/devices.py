"""The limits of devices: peak rates, memory, its bandwidth, cache; by the recorded name.

Convention of every number: **dense** (no structured sparsity), per device as the runtime shows
it (one die of an MI250X), products accumulated in float32, int8 in operations per second. Matrix
peaks are those of Tensor Cores or AMD's matrix cores, vector peaks those of the ordinary lanes.
GeForce cards multiply 16-bit types with float32 accumulation at half rate: that is the peak
here, as PyTorch accumulates in float32. Numbers that vendors do not state, or state differently in
different places, are left out: null, not a guess.

The numbers are the data sheets'. Each can be checked: multiprocessors × operations per clock ×
clock. Where the recording knows the highest clock, and it is lower, the peaks shrink with it.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from pyprof2.errors import UsageError
from pyprof2.signatures import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TERA: Final = 1e12
_GIGA: Final = 1e9
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@dataclass(frozen=True)
class Device:
    """Upper limits of one device.

    Attributes:
        name: ours, such as `H100 SXM`.
        vendor: `nvidia`, `amd`, or what a user's file says.
        compute_capability: such as `9.0`; AMD: the gfx version's first two; None: not given.
        memory_bytes_per_s: bandwidth of the memory; None where cards of one name differ in it.
        matrix_flop_per_s: dtype to peak of the matrix units. `tf32` stands for float32 rounded
            to TF32, `f32` for full float32 (AMD only), `f8` and `f4` for all types of that size.
        vector_flop_per_s: dtype to peak of the vector lanes; a multiply-add is 2.
        l2_bytes: the last cache before the memory (AMD from MI300X on: the Infinity Cache).
        source: where the numbers are from, and what is special about them.
        l2_bytes_per_s: bandwidth of that cache, where the vendor states it.
        watts: the power that it may draw: the data sheet's, of one die its share of the card's,
            of a module with a CPU that of both; None: not given.
        eta: shares of the peaks that long kernels reach, measured by a user: `f32` (and all vector
            lanes), `16` (matrix units) and `mem`; empty: not measured.
        eta_source: where these are from.
    """

    name: str
    vendor: str
    compute_capability: str | None
    memory_bytes_per_s: float | None
    matrix_flop_per_s: Mapping[str, float]
    vector_flop_per_s: Mapping[str, float]
    l2_bytes: int | None
    source: str
    l2_bytes_per_s: float | None = None
    watts: float | None = None
    eta: Mapping[str, float] = field(default_factory=dict)
    eta_source: str | None = None


@dataclass(frozen=True)
class _ListedDevice:
    """A device, its names, and the facts that separate devices of one name.

    Attributes:
        device: what it can do.
        names: as recorded.
        multiprocessors: SMs or compute units.
        memory: the GB on the card, of each size that is sold, and the GiB that the driver reports
            of them, less what error correction and the driver keep; None: not known.
        by_memory: whether another device of its names differs in its only size.
        vector_clock_hz, matrix_clock_hz: the highest, of the data sheet's peaks.
    """

    device: Device
    names: re.Pattern[str]
    multiprocessors: int | None = None
    memory: Mapping[float, float | None] = field(default_factory=dict)
    by_memory: bool = False
    vector_clock_hz: float | None = None
    matrix_clock_hz: float | None = None


@dataclass(frozen=True)
class _Chip:
    """Facts that all cards with one kind of multiprocessor share."""

    vendor: str
    compute_capability: str
    source: str
    vector_ratios: Mapping[str, float] = field(default_factory=dict)


def _ampere(capability: str, source: str) -> _Chip:
    # From GA102 on: 16-bit vector instructions at the rate of f32, f64 at 1/64.
    return _Chip("nvidia", capability, source, {"f16": 1, "bf16": 1, "f64": 1 / 64})


_GP100 = _Chip(
    "nvidia", "6.0", "data sheet; bandwidth: 4096 bit at 1430 MT/s", {"f16": 2, "f64": 0.5}
)
_GP104 = _Chip("nvidia", "6.1", "data sheet of the card", {"f16": 1 / 64, "f64": 1 / 32})
_GV100 = _Chip("nvidia", "7.0", "V100 data sheet; cache: A100 whitepaper", {"f16": 2, "f64": 0.5})
_TU104 = _Chip("nvidia", "7.5", "T4 data sheet", {"f16": 2, "f64": 1 / 32})
_TU10X = _Chip(
    "nvidia", "7.5", "Turing whitepaper, at the reference boost clock", {"f16": 2, "f64": 1 / 32}
)
_GA100 = _Chip("nvidia", "8.0", "A100 data sheet and whitepaper", {"f16": 4, "bf16": 2, "f64": 0.5})
_GA10X = _ampere("8.6", "data sheet of the card, GA102 whitepaper")
_AD10X = _ampere("8.9", "data sheet of the card, Ada whitepaper")
_GB20X = _ampere("12.0", "RTX Blackwell whitepaper")
_PRO_GB20X = _ampere("12.0", "RTX PRO Blackwell whitepaper")
_PRO_SERVER = _ampere("12.0", "data sheet of the card; its clocks are not stated")
_GH100 = _Chip("nvidia", "9.0", "H100 data sheet and whitepaper", {"f16": 2, "bf16": 2, "f64": 0.5})
_H800 = _Chip("nvidia", "9.0", "H800 data sheet; double precision is cut", {"f16": 2, "bf16": 2})
_H20 = _Chip(
    "nvidia",
    "9.0",
    "H20 data sheet; its f32 vector peak, which its clock cannot give, is left out",
)
_GH200 = _Chip("nvidia", "9.0", "GH200 data sheet", {"f16": 2, "bf16": 2, "f64": 0.5})
# The 16-bit vector rates of B200 and B300 are in no data sheet.
_GB100 = _Chip("nvidia", "10.0", "HGX B200 and GB200 NVL72 data sheets", {"f64": 0.5})
_GB110 = _Chip("nvidia", "10.3", "HGX B300 data sheet; on int8 and fp4 its editions differ")
# Its runtime says 9.0 too, as of the next chip, which has other matrix units.
_CDNA1 = _Chip("amd", "9.0.8", "data sheet; CDNA white paper", {"f64": 0.5})
_CDNA2 = _Chip("amd", "9.0", "data sheet; one die, half of an MI250(X) card", {"f64": 1})
_CDNA3 = _Chip("amd", "9.4", "data sheet of the card; cache: CDNA 3 white paper", {"f64": 0.5})
_CDNA4 = _Chip("amd", "9.5", "data sheet of the card", {"f64": 0.5})


def _times(peaks: Mapping[str, float], factor: float) -> dict[str, float]:
    return {kind: float(round(peak * factor)) for kind, peak in peaks.items()}


def _entry(  # noqa: PLR0913 -- the columns of a table
    name: str,
    chip: _Chip,
    names: str,
    *,
    f32: float | None,
    matrix: Mapping[str, float],
    gb_per_s: float | None,
    l2_mib: float | None,
    multiprocessors: int | None = None,
    ghz: tuple[float, float] | None = None,
    memory: Mapping[float, float | None] | None = None,
    by_memory: bool = False,
    more: Mapping[str, float] | None = None,
    l2_gb_per_s: float | None = None,
    watts: float,
) -> _ListedDevice:
    """Make an entry from a data sheet's numbers, in TFLOP/s; `ghz`: of vector and of matrix."""
    ratios = {"f32": 1.0} | dict(chip.vector_ratios)
    vector = {} if f32 is None else {kind: f32 * ratio for kind, ratio in ratios.items()}
    device = Device(
        name,
        chip.vendor,
        chip.compute_capability,
        gb_per_s and gb_per_s * _GIGA,
        _times(matrix, _TERA),
        _times(vector | dict(more or {}), _TERA),
        None if l2_mib is None else round(l2_mib * _MIB),
        f"{chip.source}; dense, float32 accumulate",
        l2_gb_per_s and l2_gb_per_s * _GIGA,
        float(watts),
    )
    clocks = (None, None) if ghz is None else (ghz[0] * _GIGA, ghz[1] * _GIGA)
    pattern = re.compile(rf"(?i){re.escape(name)}|{names}")
    return _ListedDevice(device, pattern, multiprocessors, memory or {}, by_memory, *clocks)


def _same(peak: float, **others: float) -> dict[str, float]:
    """Return matrix peaks with the same one for f16 and bf16."""
    return {"f16": peak, "bf16": peak} | others


_NV: Final = r"(?:NVIDIA )?(?:Tesla )?"
_RTX: Final = r"(?:NVIDIA )?(?:GeForce )?RTX "
_A100_PEAKS: Final = _same(312, tf32=156, i8=624, f64=19.5)
_H100_PEAKS: Final = _same(989.4, tf32=494.7, f8=1978.9, i8=1978.9, f64=66.9)
_H800_PEAKS: Final = _H100_PEAKS | {"f64": 1}
_H100_NVL_PEAKS: Final = _same(835.5, tf32=417.5, f8=1671, i8=1671, f64=60)
_MI300_PEAKS: Final = _same(1307.4, tf32=653.7, f8=2614.9, i8=2614.9, f32=163.4, f64=163.4)
_MI210_PEAKS: Final = _same(181, i8=181, f32=45.3, f64=45.3)

_V100_L2: Final = 2048
_A100_L2: Final = 5120
"""Bytes that the L2 cache can hand out per clock."""

_ENTRIES: Final = (
    _entry(
        "GP100", _GP100, r"(?:NVIDIA )?Quadro GP100",
        f32=10.3, matrix={}, gb_per_s=732, l2_mib=4, multiprocessors=56, ghz=(1.442, 1.442),
        watts=235,
    ),
    _entry(
        "P100 PCIe", _GP100, _NV + r"P100-PCIE-16GB",
        f32=9.3, matrix={}, gb_per_s=732, l2_mib=4, multiprocessors=56, ghz=(1.303, 1.303),
        memory={16: 15.9},
        watts=250,
    ),
    _entry(
        "P100 SXM2", _GP100, _NV + r"P100-SXM2-16GB",
        f32=10.6, matrix={}, gb_per_s=732, l2_mib=4, multiprocessors=56, ghz=(1.48, 1.48),
        memory={16: 15.9},
        watts=300,
    ),
    _entry(
        "P4", _GP104, _NV + r"P4",
        f32=5.5, matrix={}, more={"i8": 22}, gb_per_s=192, l2_mib=2,
        multiprocessors=20, ghz=(1.063, 1.063),
        memory={8: 7.4},
        watts=75,
    ),
    _entry(
        "P4000", _GP104, r"(?:NVIDIA )?Quadro P4000",
        f32=5.3, matrix={}, gb_per_s=243, l2_mib=2,
        multiprocessors=14, ghz=(1.48, 1.48),
        watts=105,
    ),
    _entry(
        "V100 SXM2", _GV100, _NV + r"V100-(?:SXM2-(?:16|32)GB|DGXS-(?:16|32)GB).*",
        f32=15.7, matrix={"f16": 125}, more={"i8": 62.8}, gb_per_s=900, l2_mib=6,
        multiprocessors=80, ghz=(1.53, 1.53),
        l2_gb_per_s=_V100_L2 * 1.53,
        memory={16: 15.7, 32: 31.7},
        watts=300,
    ),
    _entry(
        "V100 PCIe", _GV100, _NV + r"V100-PCIE-(?:16|32)GB",
        f32=14, matrix={"f16": 112}, more={"i8": 56}, gb_per_s=900, l2_mib=6,
        multiprocessors=80, ghz=(1.37, 1.37),
        l2_gb_per_s=_V100_L2 * 1.37,
        memory={16: 15.7, 32: 31.7},
        watts=250,
    ),
    _entry(
        "V100S PCIe", _GV100, _NV + r"V100S-PCIE-32GB",
        f32=16.4, matrix={"f16": 130}, more={"i8": 65.6}, gb_per_s=1134, l2_mib=6,
        multiprocessors=80, ghz=(1.597, 1.597),
        l2_gb_per_s=_V100_L2 * 1.597,
        memory={32: 31.7},
        watts=250,
    ),
    _entry(
        "T4", _TU104, _NV + r"T4",
        f32=8.1, matrix={"f16": 65, "i8": 130}, gb_per_s=320, l2_mib=4,
        multiprocessors=40, ghz=(1.59, 1.59),
        memory={16: 14.7},
        watts=70,
    ),
    _entry(
        "Quadro RTX 4000", _TU10X, r"(?:NVIDIA )?(?:Quadro )?RTX 4000",
        f32=7.1, matrix={"f16": 57}, gb_per_s=416, l2_mib=4,
        multiprocessors=36, ghz=(1.545, 1.545),
        watts=160,
    ),
    _entry(
        "RTX 2070", _TU10X, _RTX + "2070",
        f32=7.5, matrix={"f16": 29.9, "i8": 119.6}, gb_per_s=448, l2_mib=4,
        multiprocessors=36, ghz=(1.62, 1.62),
        watts=175,
    ),
    _entry(
        "RTX 2070 SUPER", _TU10X, _RTX + "2070 SUPER",
        f32=9.1, matrix={"f16": 36.2, "i8": 144.8}, gb_per_s=448, l2_mib=4,
        multiprocessors=40, ghz=(1.77, 1.77),
        watts=215,
    ),
    _entry(
        "RTX 2080", _TU10X, _RTX + "2080",
        f32=10.1, matrix={"f16": 40.3, "i8": 161.2}, gb_per_s=448, l2_mib=4,
        multiprocessors=46, ghz=(1.71, 1.71),
        watts=215,
    ),
    _entry(
        "RTX 2080 SUPER", _TU10X, _RTX + "2080 SUPER",
        f32=11.2, matrix={"f16": 44.6, "i8": 178.4}, gb_per_s=496, l2_mib=4,
        multiprocessors=48, ghz=(1.815, 1.815),
        watts=250,
    ),
    _entry(
        "RTX 2080 Ti", _TU10X, _RTX + "2080 Ti",
        f32=13.4, matrix={"f16": 53.8, "i8": 215.2}, gb_per_s=616, l2_mib=5.5,
        multiprocessors=68, ghz=(1.545, 1.545),
        watts=250,
    ),
    _entry(
        "A100 SXM 40GB", _GA100, _NV + r"A100-(?:SXM4?(?:-40GB)?|PG\d+-\d+)",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1555, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={40: 39.4}, by_memory=True,
        watts=400,
    ),
    _entry(
        "A100 SXM 80GB", _GA100, _NV + r"A100-(?:SXM4?(?:-80GB)?|PG\d+-\d+)",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=2039, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={80: 79.1}, by_memory=True,
        watts=400,
    ),
    _entry(
        "A100 PCIe 40GB", _GA100, _NV + r"A100-PCIE(?:-40GB)?",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1555, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={40: 39.4}, by_memory=True,
        watts=250,
    ),
    _entry(
        "A100 PCIe 80GB", _GA100, _NV + r"A100(?:-PCIE(?:-80GB)?| 80GB PCIe)",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1935, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={80: 79.1}, by_memory=True,
        watts=300,
    ),
    _entry(
        "A800 SXM 80GB", _GA100, _NV + r"A800-SXM4-80GB",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=2039, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={80: 79.1},
        watts=400,
    ),
    _entry(
        "A800 PCIe 80GB", _GA100, _NV + r"A800(?:-PCIE-80GB| 80GB PCIe)",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1935, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={80: 79.1},
        watts=300,
    ),
    _entry(
        "A800 PCIe 40GB", _GA100, _NV + r"A800(?:-PCIE-40GB| 40GB PCIe)",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1555, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        memory={40: 39.4},
        watts=250,
    ),
    _entry(
        "A800 40GB Active", _GA100, _NV + r"A800 40GB Active",
        f32=19.5, matrix=_A100_PEAKS, gb_per_s=1555, l2_mib=40,
        multiprocessors=108, ghz=(1.41, 1.41),
        l2_gb_per_s=_A100_L2 * 1.41,
        watts=240,
    ),
    _entry(
        "A30", _GA100, _NV + r"A30",
        f32=10.3, matrix=_same(165, tf32=82, i8=330, f64=10.3), gb_per_s=933, l2_mib=24,
        multiprocessors=56, ghz=(1.44, 1.44),
        memory={24: 23.5},
        watts=165,
    ),
    _entry(
        "A10", _GA10X, _NV + r"A10",
        f32=31.2, matrix=_same(125, tf32=62.5, i8=250), gb_per_s=600, l2_mib=6,
        multiprocessors=72, ghz=(1.695, 1.695),
        memory={24: 22.0},
        watts=150,
    ),
    _entry(
        "A10G", _GA10X, _NV + r"A10G",
        f32=35, matrix=_same(70, tf32=35, i8=140), gb_per_s=600, l2_mib=6,
        multiprocessors=80, ghz=(1.71, 1.71),
        memory={24: 22.0},
        watts=300,
    ),
    _entry(
        "A16", _GA10X, _NV + r"A16",
        f32=4.5, matrix=_same(17.9, tf32=9, i8=35.9), gb_per_s=200, l2_mib=2,
        multiprocessors=10, ghz=(1.755, 1.755),
        watts=62.5,
    ),
    _entry(
        "A2", _GA10X, _NV + r"A2",
        f32=4.5, matrix=_same(18, tf32=9, i8=36), gb_per_s=200, l2_mib=2,
        multiprocessors=10, ghz=(1.77, 1.77),
        watts=60,
    ),
    _entry(
        "A40", _GA10X, _NV + r"A40",
        f32=37.4, matrix=_same(149.7, tf32=74.8, i8=299.3), gb_per_s=696, l2_mib=6,
        multiprocessors=84, ghz=(1.74, 1.74),
        memory={48: 44.3},
        watts=300,
    ),
    _entry(
        "RTX A6000", _GA10X, r"NVIDIA RTX A6000",
        f32=38.7, matrix=_same(154.8, tf32=77.4, i8=309.7), gb_per_s=768, l2_mib=6,
        multiprocessors=84, ghz=(1.8, 1.8),
        memory={48: 47.5},
        watts=300,
    ),
    _entry(
        "RTX A4000", _GA10X, r"NVIDIA RTX A4000",
        f32=19.2, matrix=_same(76.7, tf32=38.3, i8=153.4), gb_per_s=448, l2_mib=4,
        multiprocessors=48, ghz=(1.56, 1.56),
        watts=140,
    ),
    # There are two kinds of this card, with GDDR6 and with GDDR6X, under one name.
    _entry(
        "RTX 3060 Ti", _GA10X, _RTX + "3060 Ti",
        f32=16.2, matrix=_same(32.4, tf32=16.2, i8=129.6), gb_per_s=None, l2_mib=4,
        multiprocessors=38, ghz=(1.665, 1.665),
        watts=200,
    ),
    _entry(
        "RTX 3070", _GA10X, _RTX + "3070",
        f32=20.3, matrix=_same(40.6, tf32=20.3, i8=162.4), gb_per_s=448, l2_mib=4,
        multiprocessors=46, ghz=(1.725, 1.725),
        watts=220,
    ),
    _entry(
        "RTX 3070 Ti", _GA10X, _RTX + "3070 Ti",
        f32=21.7, matrix=_same(43.5, tf32=21.75, i8=174), gb_per_s=608, l2_mib=4,
        multiprocessors=48, ghz=(1.77, 1.77),
        watts=290,
    ),
    _entry(
        "RTX 3080 Ti", _GA10X, _RTX + "3080 Ti",
        f32=34.1, matrix=_same(68.2, tf32=34.1, i8=272.8), gb_per_s=912, l2_mib=6,
        multiprocessors=80, ghz=(1.665, 1.665),
        watts=350,
    ),
    _entry(
        "RTX 3090 Ti", _GA10X, _RTX + "3090 Ti",
        f32=40, matrix=_same(80, tf32=40, i8=320), gb_per_s=1008, l2_mib=6,
        multiprocessors=84, ghz=(1.86, 1.86),
        watts=450,
    ),
    _entry(
        "RTX A5000", _GA10X, r"NVIDIA RTX A5000",
        f32=27.8, matrix=_same(111.1, tf32=55.5, i8=222.2), gb_per_s=768, l2_mib=6,
        multiprocessors=64, ghz=(1.695, 1.695),
        watts=230,
    ),
    _entry(
        "RTX 3090", _GA10X, _RTX + "3090",
        f32=35.6, matrix=_same(71, tf32=35.6, i8=284), gb_per_s=936, l2_mib=6,
        multiprocessors=82, ghz=(1.695, 1.695),
        memory={24: 23.6},
        watts=350,
    ),
    _entry(
        "RTX 3080 10GB", _GA10X, _RTX + "3080",
        f32=29.8, matrix=_same(59.5, tf32=29.8, i8=238), gb_per_s=760, l2_mib=5,
        multiprocessors=68, ghz=(1.71, 1.71),
        memory={10: None}, by_memory=True,
        watts=320,
    ),
    _entry(
        "RTX 3080 12GB", _GA10X, _RTX + "3080",
        f32=30.6, matrix=_same(61.3, tf32=30.6, i8=245), gb_per_s=912, l2_mib=6,
        multiprocessors=70, ghz=(1.71, 1.71),
        memory={12: None}, by_memory=True,
        watts=350,
    ),
    _entry(
        "L4", _AD10X, _NV + r"L4",
        f32=30.3, matrix=_same(121, tf32=60.5, f8=242, i8=242), gb_per_s=300, l2_mib=48,
        multiprocessors=58, ghz=(2.04, 2.04),
        memory={24: 22.0},
        watts=72,
    ),
    _entry(
        "L40", _AD10X, _NV + r"L40",
        f32=90.5, matrix=_same(181.05, tf32=90.5, f8=362, i8=362), gb_per_s=864, l2_mib=96,
        multiprocessors=142, ghz=(2.49, 2.49),
        memory={48: 44.3},
        watts=300,
    ),
    _entry(
        "L40S", _AD10X, _NV + r"L40S",
        f32=91.6, matrix=_same(362.05, tf32=183, f8=733, i8=733), gb_per_s=864, l2_mib=96,
        multiprocessors=142, ghz=(2.52, 2.49),
        memory={48: 44.3},
        watts=350,
    ),
    _entry(
        "RTX 6000 Ada", _AD10X, r"NVIDIA RTX 6000 Ada Generation",
        f32=91.1, matrix=_same(364, tf32=182, f8=728, i8=728), gb_per_s=960, l2_mib=96,
        multiprocessors=142, ghz=(2.505, 2.505),
        watts=300,
    ),
    # There are two kinds of this card, with GDDR6 and with GDDR6X, under one name.
    _entry(
        "RTX 4070", _AD10X, _RTX + "4070",
        f32=29.1, matrix=_same(58.3, tf32=29.15, f8=116.6, i8=233.2), gb_per_s=None, l2_mib=36,
        multiprocessors=46, ghz=(2.475, 2.475),
        watts=200,
    ),
    _entry(
        "RTX 4070 SUPER", _AD10X, _RTX + "4070 SUPER",
        f32=35.5, matrix=_same(71, tf32=35.5, f8=142, i8=284), gb_per_s=504, l2_mib=48,
        multiprocessors=56, ghz=(2.475, 2.475),
        watts=220,
    ),
    _entry(
        "RTX 4070 Ti", _AD10X, _RTX + "4070 Ti",
        f32=40.1, matrix=_same(80.2, tf32=40.1, f8=160.4, i8=320.8), gb_per_s=504, l2_mib=48,
        multiprocessors=60, ghz=(2.61, 2.61),
        watts=285,
    ),
    _entry(
        "RTX 4070 Ti SUPER", _AD10X, _RTX + "4070 Ti SUPER",
        f32=44.1, matrix=_same(88.2, tf32=44.1, f8=176.4, i8=352.8), gb_per_s=672, l2_mib=48,
        multiprocessors=66, ghz=(2.61, 2.61),
        watts=285,
    ),
    _entry(
        "RTX 4080 SUPER", _AD10X, _RTX + "4080 SUPER",
        f32=52.2, matrix=_same(104.4, tf32=52.2, f8=208.8, i8=417.6), gb_per_s=736, l2_mib=64,
        multiprocessors=80, ghz=(2.55, 2.55),
        watts=320,
    ),
    _entry(
        "RTX 5000 Ada", _AD10X, r"NVIDIA RTX 5000 Ada Generation",
        f32=65.3, matrix=_same(261.1, tf32=130.5, f8=522.2, i8=522.2), gb_per_s=576, l2_mib=72,
        multiprocessors=100, ghz=(2.55, 2.55),
        watts=250,
    ),
    _entry(
        "RTX 4090", _AD10X, _RTX + "4090",
        f32=82.6, matrix=_same(165.2, tf32=82.6, f8=330.3, i8=660.6), gb_per_s=1008, l2_mib=72,
        multiprocessors=128, ghz=(2.52, 2.52),
        memory={24: 23.6},
        watts=450,
    ),
    _entry(
        "RTX 4080", _AD10X, _RTX + "4080",
        f32=48.7, matrix=_same(97.5, tf32=48.7, f8=194.9, i8=389.9), gb_per_s=717, l2_mib=64,
        multiprocessors=76, ghz=(2.505, 2.505),
        watts=320,
    ),
    _entry(
        "RTX 5090", _GB20X, _RTX + "5090",
        f32=104.8, matrix=_same(209.5, tf32=104.8, f8=419, i8=838, f4=1676), gb_per_s=1792,
        l2_mib=96, multiprocessors=170, ghz=(2.407, 2.407),
        memory={32: 31.3},
        watts=575,
    ),
    _entry(
        "RTX PRO 6000 Workstation", _PRO_GB20X,
        r"NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        f32=126, matrix=_same(503.8, tf32=251.9, f8=1007.6, i8=1007.6, f4=2015.2), gb_per_s=1792,
        l2_mib=128, multiprocessors=188, ghz=(2.617, 2.617),
        watts=600,
    ),
    _entry(
        "RTX PRO 6000 Max-Q", _PRO_GB20X,
        r"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        f32=110.1, matrix=_same(440.5, tf32=220.2, f8=880.9, i8=880.9, f4=1761.8), gb_per_s=1792,
        l2_mib=128, multiprocessors=188, ghz=(2.288, 2.288),
        watts=300,
    ),
    _entry(
        "RTX PRO 6000 Server", _PRO_SERVER, r"NVIDIA RTX PRO 6000 Blackwell Server Edition",
        f32=120, matrix={}, gb_per_s=1597, l2_mib=128, multiprocessors=188,
        watts=600,
    ),
    _entry(
        "H100 SXM", _GH100, _NV + r"H100 80GB HBM3",
        f32=66.9, matrix=_H100_PEAKS, gb_per_s=3350, l2_mib=50,
        multiprocessors=132, ghz=(1.98, 1.83),
        memory={80: 79.1},
        watts=700,
    ),
    _entry(
        "H100 PCIe", _GH100, _NV + r"H100 PCIe",
        f32=51.2, matrix=_same(756, tf32=378, f8=1513, i8=1513, f64=51.2), gb_per_s=2039,
        l2_mib=50, multiprocessors=114, ghz=(1.755, 1.62),
        memory={80: 79.1},
        watts=350,
    ),
    _entry(
        "H100 NVL", _GH100, _NV + r"H100 NVL",
        f32=60, matrix=_H100_NVL_PEAKS, gb_per_s=3938, l2_mib=50,
        multiprocessors=132, ghz=(1.785, 1.545),
        memory={94: 93.1},
        watts=400,
    ),
    _entry(
        "H200 SXM", _GH100, _NV + r"H200",
        f32=66.9, matrix=_H100_PEAKS, gb_per_s=4800, l2_mib=50,
        multiprocessors=132, ghz=(1.98, 1.83),
        memory={141: 139.8},
        watts=700,
    ),
    _entry(
        "H200 NVL", _GH100, _NV + r"H200 NVL",
        f32=60, matrix=_H100_NVL_PEAKS, gb_per_s=4800, l2_mib=50,
        multiprocessors=132, ghz=(1.785, 1.545),
        memory={141: 139.8},
        watts=600,
    ),
    _entry(
        "GH200 96GB", _GH200, _NV + r"GH200 480GB",
        f32=66.9, matrix=_H100_PEAKS, gb_per_s=4000, l2_mib=None,
        multiprocessors=132, ghz=(1.98, 1.83),
        memory={96: None}, by_memory=True,
        watts=1000,
    ),
    _entry(
        "GH200 144GB", _GH200, _NV + r"GH200 144G HBM3e",
        f32=66.9, matrix=_H100_PEAKS, gb_per_s=4900, l2_mib=None,
        multiprocessors=132, ghz=(1.98, 1.83),
        memory={141: None}, by_memory=True,
        watts=1000,
    ),
    _entry(
        "H800 SXM", _H800, _NV + r"H800",
        f32=66.9, matrix=_H800_PEAKS, more={"f64": 1}, gb_per_s=3350, l2_mib=50,
        multiprocessors=132, ghz=(1.98, 1.83),
        memory={80: 79.1},
        watts=700,
    ),
    _entry(
        "H800 PCIe", _H800, _NV + r"H800 PCIe",
        f32=51.2, matrix=_same(756, tf32=378, f8=1513, i8=1513, f64=0.8), more={"f64": 0.8},
        gb_per_s=2039, l2_mib=50, multiprocessors=114, ghz=(1.755, 1.62),
        memory={80: 79.1},
        watts=350,
    ),
    _entry(
        "H20", _H20, _NV + r"H20",
        f32=None, matrix=_same(148, tf32=74, f8=296, i8=296, f64=1), more={"f64": 1},
        gb_per_s=4000, l2_mib=None, multiprocessors=78,
        memory={96: 95.0}, by_memory=True,
        watts=400,
    ),
    _entry(
        "B200", _GB100, _NV + r"B200",
        f32=75, matrix=_same(2250, tf32=1125, f8=4500, i8=4500, f4=9000, f64=37),
        more={"f64": 37}, gb_per_s=8000, l2_mib=126, multiprocessors=148, ghz=(1.98, 1.856),
        memory={180: 178.3},
        watts=1000,
    ),
    _entry(
        "GB200", _GB100, _NV + r"GB200",
        f32=80, matrix=_same(2500, tf32=1250, f8=5000, i8=5000, f4=10000, f64=40),
        gb_per_s=8000, l2_mib=126,
        watts=1200,
    ),
    _entry(
        "B300 SXM", _GB110, _NV + r"B300 SXM6 AC",
        f32=75, matrix=_same(2250, tf32=1125, f8=4500, f64=1.25), more={"f64": 1.25},
        gb_per_s=8000, l2_mib=126, multiprocessors=148, ghz=(1.98, 1.856),
        watts=1100,
    ),
    _entry(
        "MI100", _CDNA1, r"AMD Instinct MI100",
        f32=23.1, matrix={"f16": 184.6, "bf16": 92.3, "i8": 184.6, "f32": 46.1}, gb_per_s=1228.8,
        l2_mib=8, multiprocessors=120, ghz=(1.502, 1.502),
        memory={32: 31.9},
        watts=300,
    ),
    _entry(
        "MI210", _CDNA2, r"AMD Instinct MI210",
        f32=22.6, matrix=_MI210_PEAKS, gb_per_s=1638, l2_mib=8,
        multiprocessors=104, ghz=(1.7, 1.7),
        memory={64: 63.9},
        watts=300,
    ),
    _entry(
        "MI250", _CDNA2, r"AMD Instinct MI250(?:X ?/ ?MI250)?",
        f32=22.6, matrix=_MI210_PEAKS, gb_per_s=1638, l2_mib=8,
        multiprocessors=104, ghz=(1.7, 1.7),
        memory={64: 63.9},
        watts=280,
    ),
    _entry(
        "MI250X", _CDNA2, r"AMD Instinct MI250X(?: ?/ ?MI250)?",
        f32=23.9, matrix=_same(191.5, i8=191.5, f32=47.9, f64=47.9), gb_per_s=1638, l2_mib=8,
        multiprocessors=110, ghz=(1.7, 1.7),
        memory={64: 63.9},
        watts=280,
    ),
    _entry(
        "MI300X", _CDNA3, r"AMD Instinct MI300X(?: VF| OAM)?",
        f32=163.4, matrix=_MI300_PEAKS, gb_per_s=5300, l2_mib=256,
        multiprocessors=304, ghz=(2.1, 2.1),
        l2_gb_per_s=17_200,
        memory={192: 191.9},
        watts=750,
    ),
    _entry(
        "MI325X", _CDNA3, r"AMD Instinct MI325X(?: VF| OAM)?",
        f32=163.4, matrix=_MI300_PEAKS, gb_per_s=6000, l2_mib=256,
        multiprocessors=304, ghz=(2.1, 2.1),
        memory={256: 255.9},
        watts=1000,
    ),
    _entry(
        "MI355X", _CDNA4, r"AMD Instinct MI355X(?: VF| OAM)?",
        f32=157.3, matrix=_same(2516, f8=5033, i8=5033, f4=10066, f32=157.3, f64=78.6),
        gb_per_s=8000, l2_mib=256, multiprocessors=256, ghz=(2.4, 2.4),
        watts=1400,
    ),
)  # fmt: skip

DEVICES: Final = tuple(entry.device for entry in _ENTRIES)
"""All devices of the table."""


def find_device(
    name: str,
    multiprocessors: int | None = None,
    clock_hz: float | None = None,
    memory_bytes: int | None = None,
) -> Device | None:
    """Return the device that a recording names, or None if the table has no such one.

    The whole name must fit: an `RTX 4090 Laptop GPU` is no `RTX 4090`. Facts that do not fit
    rule a device out: a slice of a GPU has fewer multiprocessors than the GPU. Names that
    several devices share (`A100-PG509-200`, `RTX 3080`) need the facts that separate these.

    Args:
        name: as recorded, `NVIDIA H100 80GB HBM3`, or as in `DEVICES`.
        multiprocessors: recorded number of SMs or compute units.
        clock_hz: recorded highest clock; if it is lower than the data sheet's, the peaks are
            those at this clock, and the source says so.
        memory_bytes: recorded size of the memory.
    """
    found = [
        entry
        for entry in _ENTRIES
        if entry.names.fullmatch(name.strip())
        and _fits(entry.multiprocessors, multiprocessors, 0)
        and (
            not entry.by_memory
            or _fits(next(iter(entry.memory)), memory_bytes and memory_bytes / _GIB, 0.1)
        )
    ]
    if len(found) != 1:
        return None
    device, vector, matrix = found[0].device, found[0].vector_clock_hz, found[0].matrix_clock_hz
    if not clock_hz or not vector or not matrix or clock_hz >= max(vector, matrix):
        return device
    of_vector = min(1, clock_hz / vector)
    return replace(
        device,
        matrix_flop_per_s=_times(device.matrix_flop_per_s, min(1, clock_hz / matrix)),
        vector_flop_per_s=_times(device.vector_flop_per_s, of_vector),
        l2_bytes_per_s=device.l2_bytes_per_s and device.l2_bytes_per_s * of_vector,
        source=f"{device.source}; at the recorded clock of {clock_hz / _GIGA:.2f} GHz",
    )


def _fits(expected: float | None, recorded: float | None, tolerance: float) -> bool:
    """Compare, where both are known; the driver keeps some of the memory for itself."""
    if not expected or not recorded:
        return True
    return abs(recorded - expected) <= tolerance * expected


_SIZE: Final = re.compile(r"(\d+)(?:g|gb|gib)?", re.IGNORECASE)


def _of_short_name(text: str) -> list[tuple[Device, float | None, float | None]]:
    """Return the devices that a text may mean, each with a size of memory, on the card and seen."""
    exact = find_device(text)
    words = [word for word in re.split(r"[-_\s]+", text.strip().lower()) if word]
    last = _SIZE.fullmatch(words[-1]) if len(words) > 1 else None
    size, names = (float(last[1]), set(words[:-1])) if last else (None, set(words))
    every: list[tuple[Device, float | None, float | None]] = [
        (entry.device, card, gib)
        for entry in _ENTRIES
        for card, gib in entry.memory.items() or [(None, None)]
    ]
    return [each for each in every if each[0] is exact] or [
        (device, card, gib)
        for device, card, gib in every
        if size in (None, card) and names and names <= set(device.name.lower().split())
    ]


def device_named(text: str) -> Device:
    """Return the one device of the table that a name means, as `H100 SXM`, `h100-sxm`, `MI300X`.

    Raises:
        UsageError: no device has that name, or several may be meant; it names those.
    """
    found = list({device.name: device for device, _, _ in _of_short_name(text)}.values())
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{text!r}: which of {', '.join(device.name for device in found)}? Name one"
        raise UsageError(msg)
    near = difflib.get_close_matches(text.upper(), [each.name for each in DEVICES], cutoff=0.5)
    hint = f"near are {', '.join(near)}" if near else "docs/devices.rst lists those that are known"
    msg = f"{text!r}: no such device; {hint}; --device FILE describes others"
    raise UsageError(msg)


def memory_of(device: Device) -> int | None:
    """Return the bytes of memory that the driver reports of a device at least; None: not known."""
    known = [gib for entry in _ENTRIES if entry.device.name == device.name
             for gib in entry.memory.values() if gib is not None]  # fmt: skip
    return round(min(known) * _GIB) if known else None


def capacity_bytes(text: str) -> int:
    """Return the memory of a device that is named as in `A100-80`, `H100 SXM` or `RTX 4090`.

    It is what the driver reports: less than what is printed on the card.

    Raises:
        UsageError: no device is so named, or several with different memory are.
    """
    found = [each for each in _of_short_name(text) if each[2] is not None]
    sizes = {gib for _, _, gib in found if gib is not None}
    if len(sizes) == 1:
        return round(sizes.pop() * _GIB)
    if not found:
        msg = f"{text!r}: no device of known memory; give its size, as in --memory 80GB"
        raise UsageError(msg)
    there = ", ".join(f"{device.name} {card:g}" for device, card, _ in found if card)
    msg = f"{text!r}: which of {there}? Name one, or give the size, as in --memory 80GB"
    raise UsageError(msg)


def measured_device(row: Mapping[str, Any]) -> Device | None:
    """Return the CPU that a row of the canonical table `devices` describes, None if it does not.

    Its peaks are the highest rates that were measured on it: its last cache has none.
    """
    try:
        peaks = msgspec.json.decode(row["flop_per_s"] or "", type=dict[str, float])
    except msgspec.DecodeError:
        return None
    if not peaks or not row["memory_bytes_per_s"]:
        return None
    threads = f"with {row['multiprocessors']} threads " if row["multiprocessors"] else ""
    return Device(
        row["name"] or "CPU",
        "",
        None,
        row["memory_bytes_per_s"],
        {},
        peaks,
        row["cache_bytes"],
        f"measured {threads}by the recorded program, as its marker says: products and copies of "
        "large matrices",
    )


# --------------------------------------------------------------------------- a user's file

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Share = Annotated[float, msgspec.Meta(gt=0, le=1.5)]


class _DeviceFile(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of a device file, as `load_device` documents them."""

    name: str
    memory_gb_per_s: _Positive
    vector_tflops: dict[str, _Positive]
    matrix_tflops: dict[str, _Positive] = {}
    l2_mib: _Positive | None = None
    l2_gb_per_s: _Positive | None = None
    vendor: str = ""
    compute_capability: str | None = None
    source: str | None = None
    watts: _Positive | None = None
    eta: dict[Literal["f32", "16", "mem"], _Share] = {}
    eta_source: str | None = None


_KINDS: Final = frozenset(DTYPE_BITS) | {"tf32", "f8", "f4"}


def load_device(path: Path) -> Device:
    """Read a device from a JSON file.

    The keys, and the units that data sheets use:

    .. code-block:: json

        {
            "name": "My GPU",
            "memory_gb_per_s": 3350,
            "vector_tflops": {"f32": 66.9, "f64": 33.5},
            "matrix_tflops": {"bf16": 989.4, "f16": 989.4, "tf32": 494.7, "f8": 1978.9},
            "l2_mib": 50,
            "l2_gb_per_s": 5500,
            "vendor": "nvidia",
            "compute_capability": "9.0",
            "source": "measured with …",
            "watts": 700,
            "eta": {"f32": 0.85, "16": 0.72, "mem": 0.88},
            "eta_source": "measured with …"
        }

    The first three are needed. Peaks are dense, with float32 accumulation, and int8 in TOP/s.
    `eta` are the shares of the peaks that long kernels reach: of vector lanes, of matrix units and
    of the memory's bandwidth; :doc:`prediction` uses them.

    Raises:
        UsageError: the file cannot be read, or a key or a value is not one of these.
    """
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_DeviceFile)
    except OSError as error:
        msg = f"{path}: {error.strerror}; give a JSON file that describes the device"
        raise UsageError(msg) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        keys = ", ".join(field.name for field in msgspec.structs.fields(_DeviceFile))
        msg = f"{path}: not a description of a device: {error}; its keys are {keys}"
        raise UsageError(msg) from error
    unknown = sorted({*content.vector_tflops, *content.matrix_tflops} - _KINDS)
    if unknown:
        msg = f"{path}: no such dtype: {', '.join(unknown)}; use {', '.join(sorted(_KINDS))}"
        raise UsageError(msg)
    return Device(
        content.name,
        content.vendor,
        content.compute_capability,
        content.memory_gb_per_s * _GIGA,
        _times(content.matrix_tflops, _TERA),
        _times(content.vector_tflops, _TERA),
        None if content.l2_mib is None else round(content.l2_mib * _MIB),
        content.source or str(path),
        content.l2_gb_per_s and content.l2_gb_per_s * _GIGA,
        content.watts,
        {str(what): share for what, share in content.eta.items()},
        content.eta_source or (str(path) if content.eta else None),
    )
