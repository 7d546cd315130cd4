"""Whether Tensor Cores did the work of a kernel, judged by its name, and the evidence.

`RULES` is an ordered table: the first rule whose words occur in a name decides. A rule says
`yes` or `no` only on positive evidence: a Tensor Core instruction, or an operation or an
instruction of the CUDA cores. `likely` is for code whose dtype decides, such as Triton's
`tl.dot`; `tensor_core` resolves it. A name that no rule knows is `unknown`, never `no`.

"Tensor Core" stands for the matrix units of every vendor: AMD's MFMA and WMMA are meant too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.hardware.kernel_names import NAMES, TELLING, bounded, short_name

if TYPE_CHECKING:
    from collections.abc import Mapping

RULES_VERSION: Final[int] = NAMES["version"]
"""Counts changes of `RULES` that can change a verdict."""

Answer: TypeAlias = Literal["yes", "no", "likely", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer, the family of kernels that the rule is about, and what the answer rests on."""

    tensor_core: Answer
    family: str
    evidence: str


@dataclass(frozen=True, slots=True)
class NameRule:
    """Words that decide, and why.

    Attributes:
        tensor_core: the answer.
        family: the library or kind of kernels.
        pattern: the words, as a verbose regular expression.
        meaning: what the words mean; follows the word that was found.
        own: look only at the function's own name, not at its template arguments: a wrapper
            such as `cutlass::device_kernel` may carry anything there.
    """

    tensor_core: Answer
    family: str
    pattern: re.Pattern[str]
    meaning: str
    own: bool = False


RULES: Final = tuple(
    NameRule(
        rule["answer"],
        rule["family"],
        bounded(f"(?x){rule['words']}"),
        rule["meaning"],
        rule.get("own", False),
    )
    for rule in NAMES["tensor_core"]
)
"""The rules of `kernels.toml` in order; the first whose words occur decides."""

_NO_PRODUCT: Final = frozenset(NAMES["no_product"].split())
_PRODUCT: Final = frozenset(NAMES["product"].split())

_PRODUCT_PART = re.compile(r"(?i)gemm|matmul|attention|attn|fmha")
"""Parts of words that mean a product, where a name runs its words together."""

_LIBRARY = re.compile(r"(?i)deep_?gemm|fbgemm|flashinfer|transformer_engine")
"""Names of libraries that contain words of operations: no evidence about a kernel."""

_QUOTED: Final = 60
"""Characters of a match that the evidence quotes: its last."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+(?:\dd)?|\d+")


@lru_cache(1 << 14)
def tensor_core_by_name(kernel: str) -> Verdict:
    """Return the verdict that the full demangled name of a kernel allows.

    A cut, mangled or suffixed (`.kd`) name is fine: it then says less.
    """
    name = kernel.strip().removesuffix(".kd")[:TELLING]
    short = short_name(kernel)[:TELLING]
    for rule in RULES:
        # Triton's kernels have bare names: no parameters, no template arguments, no namespace.
        if rule.own and rule.family == "Triton" and short != name:
            continue
        if word := rule.pattern.search(short if rule.own else name):
            evidence = f"'{word[0].strip()[-_QUOTED:]}': {rule.meaning}"
            return Verdict(rule.tensor_core, rule.family, evidence)
    # No rule: a name whose words are all of operations without a product is a `no`.
    words = _WORD.findall(_LIBRARY.sub("", short.removeprefix("kernel_cutlass_")))
    low = [word.lower() for word in words]
    pairs = [one + other for one, other in pairwise(low)]
    plain = [word for word in (*low, *pairs) if word in _NO_PRODUCT]
    if plain and not any(word in _PRODUCT or _PRODUCT_PART.search(word) for word in low):
        found = _spelled(plain[0]).search(short)
        word_found = found[0] if found else plain[0]
        meaning = "an operation without a product, so on CUDA cores"
        return Verdict("no", "other operation", f"'{word_found}': {meaning}")
    return Verdict("unknown", "unknown", "no rule knows a word of the name")


@lru_cache(1 << 10)
def _spelled(word: str) -> re.Pattern[str]:
    """Return the pattern of a word, or pair of words, as it stands in a name."""
    return re.compile("_*".join(word), re.IGNORECASE)


# --------------------------------------------------------------------------- with the dtype

_FIRST_WITH: Final = {
    "f16": (7, 0), "i8": (7, 2), "u8": (7, 2), "i4": (7, 5), "u4": (7, 5),
    "bf16": (8, 0), "f32": (8, 0), "c64": (8, 0), "f64": (8, 0), "c128": (8, 0),
    "f8": (8, 9), "f4": (10, 0),
}  # fmt: skip
"""dtype: the first compute capability of NVIDIA whose Tensor Cores multiply it.

f32 is multiplied as TF32, c64 as TF32 parts, c128 as f64 parts. Source: "CUDA C++ Programming
Guide", table of the Tensor Cores' input types by compute capability.
"""

_ONLY_ON: Final = {
    "f64": {(8, 0), (9, 0), (10, 0), (10, 3)},
    "c128": {(8, 0), (9, 0), (10, 0), (10, 3)},
    "i4": {(7, 5), (8, 0), (8, 6), (8, 7), (8, 9)},
    "u4": {(7, 5), (8, 0), (8, 6), (8, 7), (8, 9)},
}
"""dtype: the compute capabilities that multiply it, where later ones do not. Same source."""

_FIRST_TENSOR_CORES: Final = (7, 0)

_CDNA: Final = {(9, 4), (9, 5)}
"""gfx942 and gfx950. (9, 0) is gfx90a and gfx908, but gfx906 too, which has no matrix cores."""

_CDNA_DTYPES: Final = frozenset({"f16", "bf16", "f32", "f64", "i8", "f8"})

_ANSWERS: Final[dict[bool | None, Answer]] = {True: "yes", False: "no", None: "unknown"}


def _kind(dtype: str) -> str:
    """Return `f8` for every fp8 type, `f4` for fp4, `i8` and `u8` for the quantised ones."""
    for prefix in ("f8e4", "f8e5", "f4", "qi8", "qu8"):
        if dtype.startswith(prefix):
            return prefix.removeprefix("q")[:2]
    return dtype


def _capability(text: str | None) -> tuple[int, int] | None:
    """Parse `9.0`; None where it is absent or no such thing."""
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text or "")
    return (int(found[1]), int(found[2])) if found else None


def tensor_core(
    kernel: str,
    dtype: str | None = None,
    compute_capability: str | None = None,
    tf32: bool | None = None,  # noqa: FBT001 -- one more fact that a caller has, like the dtype
    device_type: str | None = None,
) -> Verdict:
    """Return `yes`, `no` or `unknown` for a kernel of an op that computes in `dtype`.

    The verdict of the name alone holds, except on a device without Tensor Cores. Where it is
    `likely`, the dtype decides: 16-bit and 8-bit floats and int8 are multiplied by Tensor Cores
    wherever the device has them for that type; float32 only as TF32, so without a known `tf32`
    the verdict is unknown (AMD's CDNA 3 multiplies float32 as it is).

    Args:
        kernel: the full demangled name.
        dtype: in pyprof2's spelling; None: unknown.
        compute_capability: such as `9.0`; AMD: the gfx version's first two; None: unknown.
        tf32: whether float32 products may use TF32; None: unknown.
        device_type: `cuda` or `hip`; None: unknown.
    """
    capability = _capability(compute_capability)
    if capability and capability < _FIRST_TENSOR_CORES and device_type in {None, "cuda"}:
        evidence = f"compute capability {compute_capability} has no Tensor Cores"
        return Verdict("no", "device", evidence)
    verdict = tensor_core_by_name(kernel)
    if verdict.tensor_core != "likely":
        return verdict
    able, reason = _by_dtype(dtype, capability, device_type, tf32=tf32)
    return Verdict(_ANSWERS[able], verdict.family, f"{verdict.evidence}; {reason}")


def _by_dtype(
    dtype: str | None,
    capability: tuple[int, int] | None,
    device_type: str | None,
    *,
    tf32: bool | None,
) -> tuple[bool | None, str]:
    """Resolve `likely`: the code multiplies on Tensor Cores if they take the type."""
    if dtype is None:
        return None, "the dtype is not known"
    kind = _kind(dtype)
    if kind == "f64":
        return None, "compilers differ in how they multiply f64"
    if kind == "f32" and device_type != "hip" and capability not in _CDNA:
        return _by_tf32(capability, tf32=tf32)
    if capability is None and device_type != "hip" and kind in {"f16", "bf16", "f8", "f4"}:
        return True, f"{dtype}, and every device that runs such code has Tensor Cores"
    able = _multiplies(kind, capability, device_type)
    if not able and kind in {"f8", "f4"} and _multiplies("f16", capability, device_type):
        return True, f"{dtype}, widened to 16 bits on this device"
    return able, f"{dtype} on compute capability {capability or 'unknown'}"


def _by_tf32(capability: tuple[int, int] | None, *, tf32: bool | None) -> tuple[bool | None, str]:
    if capability and capability < _FIRST_WITH["f32"]:
        return False, "f32, and this device has no TF32"
    if tf32 is None:
        return None, "f32, and whether TF32 is allowed is not known"
    return tf32, "f32 as TF32" if tf32 else "f32 with TF32 off"


def _multiplies(
    kind: str, capability: tuple[int, int] | None, device_type: str | None
) -> bool | None:
    """Say whether the device's matrix units take the type; None where that is not known."""
    if capability in _CDNA:
        return kind in _CDNA_DTYPES or (kind == "f4" and capability == (9, 5))
    if kind not in _FIRST_WITH:
        return False
    if device_type == "hip" or capability is None:
        return None
    return capability >= _FIRST_WITH[kind] and capability in _ONLY_ON.get(kind, {capability})


# --------------------------------------------------------------------------- eligibility

_ALIGNMENT: Final = {"f8": 16, "f4": 32, "i8": 4, "u8": 4}
"""dtype: what K and N of a product must be multiples of.

For fp8, fp4 and int8 the library takes no other sizes (cuBLAS, "cublasLtMatmul()", tables of
what each type demands). All other types are always possible: since cuBLAS 11.0 and cuDNN 7.6.3
sizes that are not multiples of 16 bytes only cost speed (NVIDIA, "Matrix Multiplication
Background User's Guide", "Tensor Core Requirements").
"""


def eligible(
    category: str | None,
    dtype: str | None,
    dims: Mapping[str, int],
    compute_capability: str | None,
    device_type: str | None,
) -> bool | None:
    """Say whether Tensor Cores could do the work of an op, whatever did it.

    The rule is about what hardware and libraries can do, not about speed: a type that the Tensor
    Cores of the device take (float32 as TF32, even where TF32 is off), and sizes that the
    library takes (see `_ALIGNMENT`). A depthwise convolution, one channel in each group, is a
    stencil and no product of matrices.

    Args:
        category: of the op. Only matmul, conv, attention and rnn can be eligible.
        dtype: that it computes in.
        dims: `N` and `K` of a matmul; of a conv `C`, its input channels, and `groups`. Absent
            sizes are taken to be no hindrance.
        compute_capability: of the device.
        device_type: `cuda`, `hip`, `xpu` or `cpu`.

    Returns:
        None where the category, the dtype or what the device can do is not known.
    """
    if category is None:
        return None
    groups = dims.get("groups", 1)
    is_depthwise = category == "conv" and groups > 1 and groups == dims.get("C")
    if category not in MATRIX_WORK or device_type == "cpu" or is_depthwise:
        return False
    if dtype is None or device_type == "xpu":
        return None
    kind = _kind(dtype)
    step = _ALIGNMENT.get(kind, 1)
    if category == "matmul" and any(dims.get(size, 0) % step for size in ("N", "K")):
        return False
    return _multiplies(kind, _capability(compute_capability), device_type)
