"""Fit the parameters of `pyprof2 predict` to published measurements, and print its errors.

Usage: python -m benchmarks.prediction FOLDER … [--write FILE] [--docs FILE]

The folders hold tables with the columns of `ops_*.parquet`, `steps_*.parquet` and
`models_*.parquet` (NeuSight's, float32), `gemm_*.parquet` and `nccl_*.parquet` (aiconfigurator's)
and `vtrain*.csv`; what is missing is left out. Each device is predicted with all tables of it and
of its chip hidden. The file that `--write` names has fitted numbers alone, no row of any table.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from pyprof2.analysis.hardware.devices import find_device
from pyprof2.analysis.prediction.links import Link, mean_fit
from pyprof2.analysis.prediction.model import (
    COMPUTE_BOUND,
    KINDS,
    MEMORY_BOUND,
    Work,
    WorkUnit,
    half_width,
    is_same_chip,
    least,
    predict,
    reached,
    shares_of_groups,
)
from pyprof2.analysis.prediction.parameters import (
    FULL,
    HALF,
    LOW,
    MEMORY,
    NORMAL,
    HeldSteps,
    LinkFit,
    Parameters,
    Sigmas,
    System,
    is_low,
)
from pyprof2.analysis.prediction.scaling import scaled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.hardware.roofline import Floats

FLOOR_NS: Final = 3000.0
CLIP: Final = 0.7
LOW_SHARE: Final = 0.58
"""What cards of few watts reach, of what others do, where none is left to fit it to."""
HALF_SHARE: Final = 0.93
"""The same of 16-bit products, of what those of 32 bits reach."""
LEVEL: Final = 0.8
BEGIN, END = ".. errors: begin", ".. errors: end"
"""What is between these lines of the documentation is written by `--docs`."""
_SHORT_MS: Final = 0.02
"""Rows of less than that are times of hosts."""
_GOOD: Final = (0.8, 1.25)
"""Models whose measured time is further from the sum of their ops are left out."""
_KEY: Final = ["kind", "B", "M", "N", "K"]
_OF_KIND: Final = {"linear": "linear", "bmm": "batched", "softmax": "softmax", "ln": "norm"}
_GIVEN: Final = Sigmas(0.15, 0.10, 0.35, 0.10, 0.35, 0.10, 0.10, 0.40, 0.10)
"""What is not fitted: kernels without counts, what is kept, and other vendors."""
_LINKS: Final = {
    "a100_sxm": ("nvlink3", 300.0), "h100_sxm": ("nvlink4", 450.0), "b200_sxm": ("nvlink5", 900.0),
    "l40s": ("pcie4", 32.0), "rtx_pro_6000": ("pcie5", 64.0),
}  # fmt: skip
"""The links of measured systems, with their rates in one direction by the data sheet, GB/s."""
_STATED: Final = {
    "pcie4": System(
        32.0,
        {"2": LinkFit(20.0, 0.625), "4": LinkFit(25.0, 0.1625), "8": LinkFit(40.0, 0.047)},
        "aiconfigurator's L40S, at 512 MiB: over PCIe the topology decides, not the card",
    ),
    "pcie5": System(
        64.0,
        {"2": LinkFit(20.0, 0.61), "4": LinkFit(25.0, 0.406), "8": LinkFit(40.0, 0.39)},
        "aiconfigurator's RTX PRO 6000, at 512 MiB",
    ),
}
"""Links of which only rates are known, not the tables."""
_FITTED_TO: Final = [
    "sitar-lab/NeuSight, scripts/asplos/data (MIT): float32 ops and whole models",
    "ai-dynamo/aiconfigurator, systems/data (Apache-2.0): 16-bit products, NCCL",
]


# -- tables --------------------------------------------------------------------------------------


@dataclass
class Tables:
    """The tables of all folders; None where there is none of a name."""

    folders: Sequence[Path]
    unknown: set[str] = field(default_factory=set)

    def _read(self, pattern: str) -> pd.DataFrame | None:
        found = sorted({path for folder in self.folders for path in folder.glob(pattern)})
        parts = [
            pd.read_parquet(path)
            if path.suffix == ".parquet"
            else pd.read_csv(path, encoding="utf-8-sig")
            for path in found
        ]
        return pd.concat(parts, ignore_index=True) if parts else None

    def _of_known(self, frame: pd.DataFrame, column: str) -> pd.DataFrame:
        """Return the rows of devices that the table of devices has, with our names."""
        names = {name: find_device(str(name).replace("_", " ")) for name in frame[column].unique()}
        self.unknown |= {str(name) for name, device in names.items() if device is None}
        ours = frame[column].map({name: d.name for name, d in names.items() if d is not None})
        return frame.assign(dev=ours)[ours.notna()]

    @cached_property
    def ops(self) -> pd.DataFrame:
        """Single ops."""
        found = self._read("ops_*.parquet")
        if found is None:
            return pd.DataFrame(columns=[*_KEY, "flop", "byt", "dev", "t"])
        return self._of_known(found[found["split"] == "test"], "dev")

    @cached_property
    def steps(self) -> pd.DataFrame:
        """Ops of one layer of whole models, those that are kernels with counts."""
        found = self._read("steps_*.parquet")
        if found is None:
            return pd.DataFrame(columns=["model", "dev", "i", "ph", *_KEY, "flop", "byt", "t", "c"])
        known = (found["kind"] != "other") & (found["byt"] > 0)
        return self._of_known(found[known], "dev")

    @cached_property
    def good(self) -> dict[tuple[str, str], float]:
        """The measured step over the sum of its ops, by model and device, where they agree."""
        found = self._read("models_*.parquet")
        if found is None:
            return {}
        found = self._of_known(found[found["ratio"].between(*_GOOD)], "dev")
        keys = zip(found["model"], found["dev"], strict=True)
        return dict(zip(keys, found["ratio"], strict=True))

    @cached_property
    def gemms(self) -> pd.DataFrame:
        """Products in bfloat16, the fastest of each shape."""
        found = self._read("gemm_*.parquet")
        if found is None:
            return pd.DataFrame(columns=["dev", "m", "n", "k", "latency"])
        known = self._of_known(found[found["gemm_dtype"] == "bfloat16"], "device")
        return known.groupby(["dev", "m", "n", "k"])["latency"].min().reset_index()

    @cached_property
    def all_reduces(self) -> pd.DataFrame:
        """The bytes and ms of all-reduces by system and number of devices."""
        found = self._read("nccl_*.parquet")
        if found is None:
            return pd.DataFrame(columns=["system", "num_gpus", "bytes", "latency"])
        half = (found["op_name"] == "all_reduce") & (found["nccl_dtype"] == "half")
        rows = found[half]
        rows = rows.assign(system=rows["sys"].str.split(" ").str[0], bytes=2 * rows["message_size"])
        keys = ["system", "num_gpus", "bytes"]
        return rows.groupby(keys)["latency"].median().reset_index()

    @cached_property
    def iterations(self) -> pd.DataFrame | None:
        """The iterations of vTrain."""
        return self._read("vtrain*.csv")


def device(name: str) -> Device:
    """Return a device of the table."""
    found = find_device(name)
    if found is None:
        msg = f"no device {name}"
        raise LookupError(msg)
    return found


def work_of(rows: pd.DataFrame, source: Device) -> Work:
    """Return float32 ops as work; AMD multiplies float32 on its matrix units."""
    kind = rows["kind"].map(_OF_KIND).fillna("elementwise")
    product = kind.isin(["linear", "batched"]).to_numpy()
    on_matrix = product & (source.vendor == "amd")
    return Work(
        rows["t"].to_numpy(float) * 1e6, rows["flop"].to_numpy(float), rows["byt"].to_numpy(float),
        kind.map(KINDS.index).to_numpy(np.int64), on_matrix.astype(np.int64),
        [WorkUnit("f32", "no"), WorkUnit("f32", "yes")], np.zeros(len(rows), bool),
    )  # fmt: skip


def work_of_gemms(rows: pd.DataFrame) -> Work:
    """Return products in bfloat16 as work."""
    m, n, k = (rows[name].to_numpy(float) for name in ("m", "n", "k"))
    zeros = np.zeros(len(rows), np.int64)
    return Work(
        rows["latency"].to_numpy(float) * 1e6, 2 * m * n * k, 2 * (m * k + k * n + m * n),
        zeros, zeros, [WorkUnit("bf16", "yes")], zeros.astype(bool),
    )  # fmt: skip


# -- fits ----------------------------------------------------------------------------------------


def fit(tables: Tables, hidden: frozenset[str] = frozenset()) -> Parameters:
    """Return the parameters that the tables of all devices but some give; errors are not fitted."""
    own: dict[str, dict[str, float]] = {}
    for name, rows in tables.ops.groupby("dev"):
        if name not in hidden:
            own[str(name)] = reached(work_of(rows, device(str(name))), device(str(name)))
    for name, rows in tables.gemms.groupby("dev"):
        if name not in hidden:
            shares = reached(work_of_gemms(rows), device(str(name)))
            own.setdefault(str(name), {}).update(shares)
    classes = classes_of(own)
    sources = {name: _FITTED_TO[int(set(shares) == {HALF})] for name, shares in own.items()}
    before = Parameters(
        FLOOR_NS, CLIP, classes, own, dict.fromkeys(KINDS, 1.0), _GIVEN, {}, {}, sources, _FITTED_TO
    )
    return msgspec.structs.replace(before, keep=fit_keep(tables, before))


def classes_of(own: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the shares of each class: geometric means over the devices that are left in it.

    The normal class is of NVIDIA's cards. What no device of a class shows is as in the normal one;
    of cards of few watts, so much less as `LOW_SHARE` says.
    """
    names = {NORMAL: "nvidia", "amd": "amd"}
    found: dict[str, dict[str, float]] = {}
    for of, vendor in names.items():
        chosen = [n for n in own if not is_low(device(n)) and device(n).vendor == vendor]
        found[of] = _means([own[name] for name in chosen])
    normal = found[NORMAL] = {FULL: 0.81, MEMORY: 0.78} | found[NORMAL]
    normal.setdefault(HALF, HALF_SHARE * normal[FULL])
    found[LOW] = _means([own[name] for name in own if is_low(device(name))])
    found[LOW].setdefault(FULL, LOW_SHARE * normal[FULL])
    found[LOW].setdefault(HALF, normal[HALF] * found[LOW][FULL] / normal[FULL])
    return {of: shares for of, shares in found.items() if shares}


def _means(shares: Iterable[dict[str, float]]) -> dict[str, float]:
    frame = pd.DataFrame(list(shares), dtype=float)
    return {str(name): float(np.exp(np.log(frame[name]).mean())) for name in frame}


def fit_keep(tables: Tables, parameters: Parameters) -> dict[str, float]:
    """Return how much of residuals' noise the same op shows on another chip, by kind.

    By least squares, over all ordered pairs of devices of one vendor that have other chips.
    """
    sides = {}
    for name in parameters.devices:
        rows = tables.ops[(tables.ops["dev"] == name) & (tables.ops["t"] > _SHORT_MS)]
        if rows.empty:
            continue
        rows = rows.drop_duplicates(_KEY)
        work = work_of(rows, device(name))
        total = least(work, device(name), device(name), parameters).total
        noise = np.clip(np.log(work.time / total), -CLIP, CLIP)
        sides[name] = rows[_KEY].assign(noise=noise, of=work.kind).set_index(_KEY)
    sums = np.zeros((2, len(KINDS)))
    for one, other in itertools.permutations(sides, 2):
        if device(one).vendor != device(other).vendor or is_same_chip(device(one), device(other)):
            continue
        there = sides[other][["noise"]].rename(columns={"noise": "noise_there"})
        both = sides[one].join(there, how="inner")
        x, y = both["noise"].to_numpy(), both["noise_there"].to_numpy()
        for row, values in enumerate((x * y, x * x)):
            sums[row] += np.bincount(both["of"], values, len(KINDS))
    with np.errstate(invalid="ignore"):
        keep = np.clip(sums[0] / sums[1], 0, 1)
    return {k: 0.5 if math.isnan(v) else float(v) for k, v in zip(KINDS, keep, strict=True)}


# -- errors of whole models ----------------------------------------------------------------------


class Pair(NamedTuple):
    """A model that was measured on two devices.

    Attributes:
        source, target, model: which.
        true, this, bound_ratio, roofline: ns of its ops on the target, measured and predicted.
        of_group: the logarithm of predicted over true time of the kernels that each bounds.
        shares: of what the predicted time rests on.
        step_off: the same of the whole step, measured around all ops.
    """

    source: str
    target: str
    model: str
    true: float
    this: float
    bound_ratio: float
    roofline: float
    of_group: dict[str, float]
    shares: Floats
    step_off: float

    @property
    def off(self) -> float:
        """The logarithm of predicted over true time."""
        return math.log(self.this / self.true)


def pairs_of(tables: Tables, *, given: bool = False) -> list[Pair]:
    """Return all pairs of devices of one vendor that measured a model, predicted.

    Each target is hidden with its chip; with `given` its op tables are not.
    """
    found = []
    for target in sorted({dev for _, dev in tables.good}):
        there = device(target)
        names = {*tables.ops["dev"], *tables.gemms["dev"]}
        hidden = frozenset(n for n in names if n == target or is_same_chip(device(n), there))
        parameters = fit(tables, frozenset() if given else hidden)
        for source in sorted({dev for _, dev in tables.good} - {target}):
            here = device(source)
            if here.vendor != there.vendor or is_same_chip(here, there):
                continue
            models = sorted({m for m, d in tables.good if d == target})
            found += [
                _pair(tables, (source, target), model, parameters)
                for model in models
                if (model, source) in tables.good
            ]
    return found


def _joined(tables: Tables, source: str, target: str, model: str) -> pd.DataFrame:
    own = tables.steps[tables.steps["model"] == model]
    here, there = (own[own["dev"] == name].set_index(["i", "ph"]) for name in (source, target))
    both = here.join(there[["t"]].rename(columns={"t": "true"}), how="inner")
    return both[both["t"] > _SHORT_MS]


def _pair(tables: Tables, names: tuple[str, str], model: str, parameters: Parameters) -> Pair:
    both = _joined(tables, *names, model)
    source, target = map(device, names)
    work = work_of(both, source)
    found = predict(work, source, target, parameters)
    times = both["c"].to_numpy(float) / 1e6
    bound_ratio, roofline = _simple(work, source, target)
    true = both["true"].to_numpy(float) * 1e6
    of_group = {}
    for group, name in ((COMPUTE_BOUND, "compute"), (MEMORY_BOUND, "memory")):
        rows = found.group == group
        if rows.any() and (true * times)[rows].sum() > 0.1 * (true * times).sum():
            of_group[name] = math.log((found.time * times)[rows].sum() / (true * times)[rows].sum())
    weighted = shares_of_groups(found.__class__(**(vars(found) | {"time": found.time * times})))
    sums = [float((each * times).sum()) for each in (true, found.time, bound_ratio, roofline)]
    return Pair(
        names[0], names[1], model, sums[0], sums[1], sums[2], sums[3], of_group, weighted,
        math.log((found.time * times).sum() / (true * times).sum()
                 * tables.good[model, names[0]] / tables.good[model, names[1]]),
    )  # fmt: skip


def _simple(work: Work, source: Device, target: Device) -> tuple[Floats, Floats]:
    """Return the recorded times by the ratio of the roofs, and the roofs of the target."""
    terms = []
    for each in (source, target):
        peak = np.array([unit.peak(each, source) for unit in work.units])[work.unit]
        terms.append((work.flops / peak, work.bytes / (each.memory_bytes_per_s or math.nan)))
    (c_here, m_here), (c_there, m_there) = terms
    memory = (source.memory_bytes_per_s or 1) / (target.memory_bytes_per_s or 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(c_here > m_here, c_there / c_here, memory)
    return work.time * ratio, 1e9 * np.maximum(c_there, m_there)


def fit_sigmas(pairs: Sequence[Pair], given: Sequence[Pair], level: float = LEVEL) -> Sigmas:
    """Return the errors of intervals: those of devices that were hidden, by what bounds kernels.

    Args:
        pairs: with the target hidden.
        given: with its op tables known.
        level: the share of these pairs whose steps the intervals are to hold.
    """

    def quantile(rows: Iterable[Pair], group: str, default: float) -> float:
        offs = [abs(pair.of_group[group]) for pair in rows if group in pair.of_group]
        return float(np.quantile(offs, LEVEL)) / _Z if offs else default

    usual = [p for p in pairs if not _has_low(p)]
    low = [p for p in pairs if _has_low(p)]
    known = [p for p in given if not _has_low(p)]
    found = Sigmas(
        quantile(usual, "compute", _GIVEN.compute), quantile(known, "compute", _GIVEN.measured),
        quantile(low, "compute", _GIVEN.low), quantile(pairs, "memory", _GIVEN.memory),
        _GIVEN.extrapolated, _GIVEN.kept, _GIVEN.base, _GIVEN.vendor, _GIVEN.base_low,
    )  # fmt: skip
    # What remains is no kernel's own: the clock and the heat of the card, what runs between ops.
    # It does not average out over kernels, and is that of whole measured steps.
    for name, own in (("base", usual), ("base_low", low)):
        for base in np.arange(0.02, 0.61, 0.01):
            found = msgspec.structs.replace(found, **{name: round(float(base), 3)})
            if not own or np.mean([abs(p.step_off) <= _width(p, found) for p in own]) >= level:
                break
    return found


def fit_held(pairs: Sequence[Pair], given: Sequence[Pair]) -> tuple[Sigmas, pd.DataFrame]:
    """Return errors so wide that intervals hold with devices left out, and `left_out` with them.

    Intervals that hold the steps of given devices hold fewer of those of a device that was not
    given. So they are fitted to hold a larger share, the least one that is enough for each class.
    """
    frame, level = pd.DataFrame(columns=["target", "low", "step"]), LEVEL
    for level in (LEVEL, 0.85, 0.9, 0.95, 1.0) if pairs else ():
        frame = left_out(pairs, given, level)
        if all(min(each.percent, each.mean) >= 100 * LEVEL for each in held_of(frame).values()):
            break
    return fit_sigmas(pairs, given, level), frame


def held_of(frame: pd.DataFrame) -> dict[str, HeldSteps]:
    """Return how often intervals held, by class; see `left_out`."""
    found = {}
    for low, own in frame.groupby("low", observed=True):
        by = own.groupby("target", observed=True)["step"]
        devices, enough = by.mean(), by.size() >= _ENOUGH
        shares = (own["step"].mean(), devices.mean(), devices[enough].min())
        found[LOW if low else NORMAL] = HeldSteps(len(own), *(math.floor(100 * s) for s in shares))
    return found


_Z: Final = 1.2816
_ENOUGH: Final = 5
"""Fewer steps on a device do not show how often its intervals hold."""


def _has_low(pair: Pair) -> bool:
    return is_low(device(pair.source)) or is_low(device(pair.target))


def _width(pair: Pair, sigma: Sigmas) -> float:
    classes = {NORMAL: {FULL: 1.0, HALF: 1.0, MEMORY: 1.0}, LOW: {}}
    parameters = Parameters(FLOOR_NS, CLIP, classes, {}, {}, sigma, {}, {}, {}, [])
    return half_width(pair.shares, device(pair.source), device(pair.target), parameters, LEVEL)


# -- links and vTrain ----------------------------------------------------------------------------


def fit_systems(tables: Tables) -> dict[str, System]:
    """Return latency and share of the rate of each measured link, by the number of devices."""
    found = {}
    for name, rows in tables.all_reduces.groupby("system"):
        link, rate = next(
            (each for key, each in _LINKS.items() if str(name).startswith(key)), (None, 0.0)
        )
        if link is None:
            tables.unknown.add(str(name))
            continue
        fits = {
            str(count): fit_link(int(str(count)), rate, own)
            for count, own in rows.groupby("num_gpus")
        }
        found[link] = System(rate, fits, f"aiconfigurator's NCCL measurements on {name}")
    return _STATED | found


def fit_link(count: int, rate: float, rows: pd.DataFrame) -> LinkFit:
    """Return the latency and the share that fit best, by the logarithm of times, on a grid."""
    moved = 2 * (count - 1) / count * rows["bytes"].to_numpy(float) / (rate * 1e3)
    true = np.log(rows["latency"].to_numpy(float) * 1e3)
    # Gradients are large: messages of 1 MiB and more count.
    large = rows["bytes"].to_numpy() >= 1 << 20
    best = min(
        itertools.product(np.geomspace(3, 100, 71), np.geomspace(0.02, 1, 118)),
        key=lambda each: np.abs(np.log(each[0] + moved / each[1]) - true)[large].mean(),
    )
    return LinkFit(round(float(best[0]), 1), round(float(best[1]), 3))


def table_time(tables: Tables, system: str, count: int, nbytes: float) -> float:
    """Return the ms of an all-reduce by a measured table: between its points in logarithms."""
    own = tables.all_reduces
    own = own[own["system"].str.startswith(system) & (own["num_gpus"] == count)].sort_values(
        "bytes"
    )
    x, y = own["bytes"].to_numpy(float), own["latency"].to_numpy(float)
    if nbytes > x[-1]:
        return float(y[-1] * nbytes / x[-1])
    return float(np.exp(np.interp(np.log(nbytes), np.log(x), np.log(y))))


class Iterations(NamedTuple):
    """Iterations of n ranks, ms: of one rank alone, as measured, and the added communication."""

    alone: Floats
    true: Floats
    added: Floats

    @property
    def errors(self) -> Floats:
        """In %."""
        return 100 * np.abs((self.alone + self.added) / self.true - 1)

    @property
    def covered_pct(self) -> float:
        """How many lie in the interval of `pyprof2 predict --no-overlap`."""
        found = [
            scaled((one, one, one), (one + more, one + more), (more, more), None)
            for one, more in zip(self.alone.tolist(), self.added.tolist(), strict=True)
        ]
        pairs = zip(found, self.true.tolist(), strict=True)
        return 100 * float(np.mean([each.lo <= true <= each.hi for each, true in pairs]))


def vtrain_iterations(tables: Tables, link: Link | None) -> dict[str, Iterations]:
    """Return iterations of n ranks predicted from those of one, three ways."""
    rows = tables.iterations
    if rows is None:
        return {}
    names = ["gpus", "batch", "micro", "h", "heads", "layers", "seq", "tp", "dp", "pp", "ms"]
    rows = rows.set_axis(names, axis=1)
    rows = rows.assign(own=rows["batch"] / rows["dp"], others=rows["gpus"] / rows["dp"])
    keys = ["own", "others", "micro", "h", "heads", "layers", "seq", "tp", "pp"]
    one = rows[rows["dp"] == 1].set_index(keys)["ms"].rename("alone")
    many = rows[rows["dp"] > 1].join(one, on=keys, how="inner")
    size = 2 * (12 * many["layers"] * many["h"] ** 2 / many["pp"] / many["tp"]
                + 51200 * many["h"] / many["tp"])  # fmt: skip
    of = list(zip(many["dp"].astype(int), size, strict=True))
    added = {"linear": np.zeros(len(many))}
    if tables.all_reduces["system"].eq("a100_sxm").any():
        added["measured table"] = np.array([table_time(tables, "a100_sxm", n, s) for n, s in of])
    if link is not None:
        added["fitted link"] = np.array([link.all_reduce(n, np.array([s]))[0] / 1e6 for n, s in of])
    alone, true = (many[name].to_numpy(float) for name in ("alone", "ms"))
    return {name: Iterations(alone, true, more) for name, more in added.items()}


# -- what is printed -----------------------------------------------------------------------------


def three(errors: Iterable[float]) -> str:
    """Return median, mean and 90th percentile of errors in %."""
    found = np.array(list(errors), float)
    if not len(found):
        return "–"
    return f"{np.median(found):.1f}/{found.mean():.1f}/{np.quantile(found, 0.9):.1f}"


def _row(name: str, rows: Sequence[Pair]) -> dict[str, Any]:
    off = {
        what: [100 * abs(getattr(p, what) / p.true - 1) for p in rows]
        for what in ("this", "bound_ratio", "roofline")
    }
    return {"": name, "n": len(rows)} | {what: three(each) for what, each in off.items()}


def whole_models(pairs: Sequence[Pair], given: Sequence[Pair]) -> pd.DataFrame:
    """Return the errors of whole models: all, by tier and by target."""
    nvidia = [p for p in pairs if device(p.target).vendor == "nvidia"]
    known = [p for p in given if device(p.target).vendor == "nvidia"]
    rows = [
        _row("all, target never seen", pairs),
        _row("NVIDIA, target never seen", nvidia),
        _row("of these both over 80 W", [p for p in nvidia if not _has_low(p)]),
        _row("NVIDIA, target's op tables given", known),
        _row("of these both over 80 W", [p for p in known if not _has_low(p)]),
        _row("AMD, target never seen", [p for p in pairs if p not in nvidia]),
        _row("inference", [p for p in nvidia if "-inf-" in p.model]),
        _row("training", [p for p in nvidia if "-train-" in p.model]),
    ]
    targets = sorted({p.target for p in pairs})
    rows += [_row(f"to {name}", [p for p in pairs if p.target == name]) for name in targets]
    return pd.DataFrame(rows)


def left_out(pairs: Sequence[Pair], given: Sequence[Pair], level: float) -> pd.DataFrame:
    """Return for each pair whether intervals hold the true time, with errors from other targets.

    Args:
        pairs: with the target hidden.
        given: with its op tables known.
        level: see `fit_sigmas`.
    """
    rows = []
    for target in sorted({p.target for p in pairs}):
        others = [[p for p in each if p.target != target] for each in (pairs, given)]
        sigma = fit_sigmas(others[0], others[1], level)
        for pair in (p for p in pairs if p.target == target):
            width = _width(pair, sigma)
            rows.append(
                {"target": target, "low": _has_low(pair), "holds": abs(pair.off) <= width,
                 "step": abs(pair.step_off) <= width, "hi/lo": math.exp(2 * width)}
            )  # fmt: skip
    return pd.DataFrame(rows)


def coverage(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how often intervals hold the true time; see `left_out`."""
    parts = [("all", frame), ("both over 80 W", frame[~frame["low"]])]
    parts += [("one of at most 80 W", frame[frame["low"]])]
    parts += [(f"to {name}", own) for name, own in frame.groupby("target")]
    found = [
        {
            "": name, "n": len(own), "ops covered %": 100 * own["holds"].mean(),
            "steps covered %": 100 * own["step"].mean(), "hi/lo": own["hi/lo"].median(),
        }
        for name, own in parts
        if len(own)
    ]  # fmt: skip
    return pd.DataFrame(found).round(2)


def same_chip(tables: Tables, parameters: Parameters) -> pd.DataFrame:
    """Return the errors of single ops between two cards with one chip."""
    rows = []
    for one, other in itertools.permutations(sorted(set(tables.ops["dev"])), 2):
        if not is_same_chip(device(one), device(other)):
            continue
        both = _common_ops(tables, one, other)
        found = predict(work_of(both, device(one)), device(one), device(other), parameters)
        off = 100 * np.abs(found.time / (both["true"].to_numpy() * 1e6) - 1)
        rows.append({"": f"{one} to {other}", "n": len(both), "this": three(off)})
    return pd.DataFrame(rows)


def _common_ops(tables: Tables, one: str, other: str) -> pd.DataFrame:
    here, there = (
        tables.ops[tables.ops["dev"] == n].drop_duplicates(_KEY).set_index(_KEY)
        for n in (one, other)
    )
    both = here.join(there[["t"]].rename(columns={"t": "true"}), how="inner").reset_index()
    return both[(both["t"] > _SHORT_MS) & (both["true"] > _SHORT_MS)]


def products(tables: Tables) -> pd.DataFrame:
    """Return the errors of single 16-bit products over 20 us, with the target hidden."""
    rows = []
    for one, other in itertools.permutations(sorted(set(tables.gemms["dev"])), 2):
        here, there = device(one), device(other)
        own = tables.gemms[tables.gemms["dev"] == one].set_index(["m", "n", "k"])
        others = tables.gemms[tables.gemms["dev"] == other].set_index(["m", "n", "k"])["latency"]
        both = own.join(others.rename("true"), how="inner").reset_index()
        both = both[(both["true"] > _SHORT_MS) & (both["latency"] > _SHORT_MS)]
        hidden = frozenset(
            n for n in {*tables.ops["dev"], *tables.gemms["dev"]}
            if n == other or is_same_chip(device(n), there)
        )  # fmt: skip
        work = work_of_gemms(both)
        ratio, roofline = _simple(work, here, there)
        this = predict(work, here, there, fit(tables, hidden)).time
        true = both["true"].to_numpy() * 1e6
        names = ("this", "bound_ratio", "roofline")
        rows.append(
            {"": f"{one} to {other}", "n": len(both)}
            | {
                n: three(100 * np.abs(e / true - 1))
                for n, e in zip(names, (this, ratio, roofline), strict=True)
            }
        )
    return pd.DataFrame(rows)


def links(tables: Tables, systems: dict[str, System]) -> pd.DataFrame:
    """Return the errors of all-reduces of 1 MiB and more: as fitted, and by the other links."""
    rows = []
    for name, all_sizes in tables.all_reduces.groupby("system"):
        link = next((each for key, each in _LINKS.items() if str(name).startswith(key)), None)
        if link is None:
            continue
        own = all_sizes[all_sizes["bytes"] >= 1 << 20]
        true = own["latency"].to_numpy(float) * 1e6
        others = [s for n, s in systems.items() if n.startswith("nvlink") and n != link[0]]
        fits = {"fitted": {int(n): f for n, f in systems[link[0]].fits.items()}}
        fits |= {"by the others": mean_fit(others)} if others else {}
        row: dict[str, Any] = {"": str(name), "n": len(own)}
        for what, each in fits.items():
            found = Link(str(name), link[1], each, "")
            times = [
                found.all_reduce(int(n), np.array([float(b)]))[0]
                for n, b in zip(own["num_gpus"], own["bytes"], strict=True)
            ]
            row[what] = three(100 * np.abs(np.array(times) / true - 1))
        rows.append(row)
    return pd.DataFrame(rows)


class Errors(NamedTuple):
    """All tables of errors, and the parameters."""

    tables: dict[str, pd.DataFrame]
    parameters: Parameters


def errors_of(tables: Tables) -> Errors:
    """Return all that the tables of measurements show."""
    pairs, given = pairs_of(tables), pairs_of(tables, given=True)
    sigma, frame = fit_held(pairs, given)
    parameters = msgspec.structs.replace(
        fit(tables), sigma=sigma, systems=fit_systems(tables), held=held_of(frame)
    )
    found = {
        "Whole models, float32, leaving out one device with its chip": whole_models(pairs, given),
        "Intervals of 80 %": coverage(frame) if pairs else pd.DataFrame(),
        "Single ops, float32, from one card to another with the same chip": same_chip(
            tables, parameters
        ),
        "Products in bfloat16 over 20 us, leaving out one device": products(tables),
        "All-reduces of 1 MiB and more": links(tables, parameters.systems),
        "vTrain, gradients after the backward pass, n ranks from one": vtrain(tables, parameters),
    }
    return Errors({title: frame for title, frame in found.items() if len(frame)}, parameters)


def vtrain(tables: Tables, parameters: Parameters) -> pd.DataFrame:
    """Return the errors of iterations of several ranks."""
    own = parameters.systems.get("nvlink3")
    fits = own and {int(count): each for count, each in own.fits.items()}
    link = Link("nvlink3", own.gb_per_s, fits, "") if own and fits else None
    rows = []
    for name, each in vtrain_iterations(tables, link).items():
        off = each.errors
        values = (np.median(off), off.mean(), np.quantile(off, 0.9))
        row = {"": name, "n": len(off), "this": "/".join(f"{v:.2f}" for v in values)}
        row |= {"max": f"{off.max():.1f}"}
        rows.append(row | {"interval covers %": f"{each.covered_pct:.0f}"})
    return pd.DataFrame(rows)


def as_rst(found: Errors) -> str:
    """Return the tables as the documentation has them."""
    parts = []
    for title, frame in found.tables.items():
        lines = [f"{title}:", "", ".. list-table::", "   :header-rows: 1", ""]
        for row in [[str(name).replace("_", " ") for name in frame], *frame.to_numpy().tolist()]:
            cells = [f"{v:.2f}" if isinstance(v, float) else str(v) for v in row]
            lines += [
                f"   {'*' if not at else ' '} - {cell}".rstrip() for at, cell in enumerate(cells)
            ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _print(title: str, frame: pd.DataFrame) -> None:
    if len(frame):
        print(f"\n{title}\n{frame.to_string(index=False)}")


def main() -> int:
    """Fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the parameters")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="put the errors in there")
    args = parser.parse_args()
    tables = Tables(args.folder)
    found = errors_of(tables)
    parameters = found.parameters
    print("Errors in %: median/mean/90th percentile of |predicted / true - 1|")
    for title, frame in found.tables.items():
        _print(title, frame)
    print(f"\nclasses {_rounded(parameters.classes)}\ndevices {_rounded(parameters.devices)}")
    print(f"keep {_rounded(parameters.keep)}\nsigma {parameters.sigma}")
    if tables.unknown:
        print(f"left out, not in the table of devices: {', '.join(sorted(tables.unknown))}")
    if args.docs is not None:
        text = args.docs.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        args.docs.write_text(
            f"{before}{BEGIN}\n\n{as_rst(found)}\n\n{END}{after}", encoding="utf-8"
        )
    if args.write is not None:
        content = _rounded(msgspec.to_builtins(parameters))
        args.write.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    return 0


def _rounded(value: Any) -> Any:
    """Return values with three digits: more would say more than the measurements do."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value


if __name__ == "__main__":
    raise SystemExit(main())
