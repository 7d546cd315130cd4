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

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from pyprof2.errors import UsageError, refuse, suggest
from pyprof2.signatures import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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

    def device(self, source: str) -> Device:
        """Return what the keys describe, in units without a prefix; `source`: where none is."""
        return Device(
            self.name,
            self.vendor,
            self.compute_capability,
            self.memory_gb_per_s and self.memory_gb_per_s * _GIGA,
            _times(self.matrix_tflops, _TERA),
            _times(self.vector_tflops, _TERA),
            None if self.l2_mib is None else round(self.l2_mib * _MIB),
            self.source or source,
            self.l2_gb_per_s and self.l2_gb_per_s * _GIGA,
            self.watts,
            {str(what): share for what, share in self.eta.items()},
            self.eta_source or (source if self.eta else None),
        )


class _Chip(msgspec.Struct, forbid_unknown_fields=True):
    """Facts that all cards with one kind of multiprocessor share.

    Attributes:
        vendor, compute_capability, source: as of `Device`.
        vector_ratios: dtype to its peak on the vector lanes, over that of f32.
        note: why, where the numbers do not say it.
    """

    vendor: str
    compute_capability: str
    source: str
    vector_ratios: dict[str, float] = {}
    note: str = ""


class _ListedDevice(_DeviceFile, kw_only=True):
    """A device of `devices.json`: the keys of a user's file, its names, and what separates it.

    Attributes:
        chip: its multiprocessors, a key of `chips`.
        names: as recorded, besides our own: a pattern.
        multiprocessors: SMs or compute units.
        ghz: the highest clocks, of the data sheet's peaks: of vector and of matrix units.
        memory: the GB on the card, of each size that is sold, and the GiB that the driver reports
            of them, less what error correction and the driver keep; None: not known.
        by_memory: whether another device of its names differs in its only size.
        note: why, where the numbers do not say it.
    """

    chip: str
    names: str
    memory_gb_per_s: _Positive | None = None  # type: ignore[assignment]
    multiprocessors: int | None = None
    ghz: tuple[float, float] | None = None
    memory: tuple[tuple[float, float | None], ...] = ()
    by_memory: bool = False
    note: str = ""


class _Table(msgspec.Struct):
    chips: dict[str, _Chip]
    devices: list[_ListedDevice]


def _times(peaks: Mapping[str, float], factor: float) -> dict[str, float]:
    return {kind: float(round(peak * factor)) for kind, peak in peaks.items()}


def _read_table() -> Iterator[tuple[Device, re.Pattern[str], _ListedDevice]]:
    """Yield the devices that come with the package, with the pattern of their names."""
    content = files("pyprof2").joinpath("data/devices.json").read_bytes()
    table = msgspec.json.decode(content, type=_Table)
    for row in table.devices:
        chip, f32 = table.chips[row.chip], row.vector_tflops.get("f32")
        row.vendor, row.compute_capability = chip.vendor, chip.compute_capability
        if f32 is not None:
            scaled = {kind: f32 * ratio for kind, ratio in chip.vector_ratios.items()}
            row.vector_tflops = {"f32": f32} | scaled | row.vector_tflops
        device = row.device(f"{chip.source}; dense, float32 accumulate")
        yield device, re.compile(rf"(?i){re.escape(row.name)}|{row.names}"), row


_ENTRIES: Final = tuple(_read_table())

DEVICES: Final = tuple(device for device, _, _ in _ENTRIES)
"""All devices of the table `pyprof2/data/devices.json`."""


@lru_cache(maxsize=1 << 10)
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
        (device, row.ghz)
        for device, names, row in _ENTRIES
        if names.fullmatch(name.strip())
        and _fits(row.multiprocessors, multiprocessors, 0)
        and (
            not row.by_memory or _fits(row.memory[0][0], memory_bytes and memory_bytes / _GIB, 0.1)
        )
    ]
    if len(found) != 1:
        return None
    device, ghz = found[0]
    if not clock_hz or ghz is None or clock_hz >= max(ghz) * _GIGA:
        return device
    vector, matrix = (clock * _GIGA for clock in ghz)
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
        (device, card, gib)
        for device, _, row in _ENTRIES
        for card, gib in row.memory or [(None, None)]
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
        refuse(f"{text!r}: which of {', '.join(device.name for device in found)}? Name one")
    hint = suggest(text, [each.name for each in DEVICES])
    msg = (
        f"{text!r}: no such device; {hint}docs/devices.rst lists the known ones, and "
        "--device FILE describes others"
    )
    raise UsageError(msg)


def memory_of(device: Device) -> int | None:
    """Return the bytes of memory that the driver reports of a device at least; None: not known."""
    known = [gib for each, _, row in _ENTRIES if each.name == device.name
             for _, gib in row.memory if gib is not None]  # fmt: skip
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
        refuse(f"{text!r}: no device of known memory; give its size, as in --memory 80GB")
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
        refuse(f"{path}: no such dtype: {', '.join(unknown)}; use {', '.join(sorted(_KINDS))}")
    return content.device(str(path))
