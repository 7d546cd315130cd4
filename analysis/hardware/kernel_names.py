"""Reading the name of a kernel: its short form, its kind of work, whether it is a helper.

A name is what the compiler made of a C++ function (`void ns::name<args>(types)`), a bare word
from a code generator (`nvjet_tst_…`, `triton_poi_…`, `Cijk_…`), or a mangled symbol (`_ZN…`).
Profilers cut names, and write the unnamed namespace and lambdas in ways of their own.

The op that launched a kernel says more than its name; the name counts where there is no op,
and to recognise communication and helper kernels.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Final

from pyprof2.analysis.categories import MATRIX_WORK

NAMES: Final = tomllib.loads(files("pyprof2").joinpath("data/kernels.toml").read_text("utf-8"))
"""The words of `kernels.toml`, each as it stands there."""

ANONYMOUS: Final = "(anonymous namespace)"

TELLING: Final = 8192
"""Characters of a name that are searched for words: real names are shorter."""

_CACHE_SIZE: Final = 1 << 14
"""Distinct names of one run: thousands. A name is asked about more than once."""

# Anyone may have written the names: the time of a pattern grows with the text, and no faster.
SPAN: Final = 512
"""Characters that a repetition in a bounded pattern covers at most."""

_QUANTIFIER: Final = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z))|([*+])", re.DOTALL)


def bounded(words: str, flags: int = 0) -> re.Pattern[str]:
    r"""Compile a pattern with each `*` and `+` limited to `SPAN` characters.

    A search for `a\w*b` goes through the rest of the text at each `a`; bounded, it does not.
    """
    limited = {"*": f"{{0,{SPAN}}}", "+": f"{{1,{SPAN}}}"}
    return re.compile(_QUANTIFIER.sub(lambda found: found[1] or limited[found[2]], words), flags)


# --------------------------------------------------------------------------- short names

_DESCRIPTOR: Final = ".kd"
_CLONE: Final = "[clone "
_COPY = re.compile(r"(Mem(?:cpy|set)(?: \w+)?)(?:\s*\(|$)")
_UNNAMED = re.compile(r"<unnamed>|\(anonymous\)|\{anonymous\}|`anonymous[ -]namespace'")
_PLAIN = re.compile(r"[^<>()\[\]{}\s]+?(?=(?<!\w)operator\b|[<>()\[\]{}\s]|$)")
_OPERATOR = re.compile(r"(?<!\w)operator\b\s*(?:\(\)|\[\]|->\*?|<=>|<<=?|>>=?|[<>=!+\-*/%^&|~]=?)")
_NEXT_WORD = re.compile(r"\s+(?=[\w~\[{]|\(anonymous namespace\))")
_CLOSER: Final = {"<": ">", "(": ")", "[": "]", "{": "}"}


@lru_cache(_CACHE_SIZE)
def short_name(kernel: str) -> str:
    """Return the qualified name alone: no return type, arguments, or template arguments.

    `void at::native::reduce_kernel<512, 1>(int)` gives `at::native::reduce_kernel`. The unnamed
    namespace is always `(anonymous namespace)`. Names cut in the middle give their whole part. Only
    the path of a mangled name is read; one that is not understood stays as it is.
    """
    name = kernel.strip()
    while True:  # without `.kd` and `[clone …]` at its end
        clone = name.rfind(_CLONE) if name.endswith("]") else -1
        if name.endswith(_DESCRIPTOR):
            name = name.removesuffix(_DESCRIPTOR)
        elif clone >= 0 and name.find("]", clone) == len(name) - 1:
            name = name[:clone].rstrip()
        else:
            break
    if copy := _COPY.match(name):
        return copy[1]
    if name.startswith("_Z"):
        return _mangled_path(name) or name
    name = _UNNAMED.sub(ANONYMOUS, name).removeprefix("void ")
    if not any(bracket in name for bracket in "<("):
        return name
    return _outside_brackets(name) or name


def _outside_brackets(name: str) -> str:
    """Return the last word of `name` before its arguments, without brackets and their content."""
    kept, at = "", 0
    while at < len(name):
        end, part = at + 1, ""
        if name.startswith(ANONYMOUS, at):
            end, part = at + len(ANONYMOUS), ANONYMOUS
        elif operator := _OPERATOR.match(name, at):
            end, part = operator.end(), operator[0].replace(" ", "")
        elif word := _PLAIN.match(name, at):
            end, part = word.end(), word[0]
        elif space := _NEXT_WORD.match(name, at):
            end, kept = space.end(), ""  # what came before was the return type
        elif name[at] in "[{":  # a lambda: `f(int)::{lambda(float)#1}::operator()(float)`
            end = _past(name, at)
            part = name[at:end]
        elif name[at] in "<(":
            end = _past(name, at)
            if name[at] == "(" and not name.startswith("::", end) and kept != "decltype":
                break  # the arguments of the kernel itself
        kept, at = kept + part, end
    return kept.strip(": ")


def _past(name: str, at: int) -> int:
    """Return the position after the bracket that closes the one at `at`; the end if none does.

    A `>` closes only a `<`: those of `->`, of comparisons and of shifts inside parentheses
    leave the stack as it is, and a `)` drops every `<` that was left open inside.
    """
    stack: list[str] = []
    still_open = dict.fromkeys(_CLOSER.values(), 0)
    for position in range(at, len(name)):
        character = name[position]
        if closer := _CLOSER.get(character):
            stack.append(closer)
            still_open[closer] += 1
        elif character == ">" and (stack[-1] != ">" or name[position - 1] == "-"):
            continue
        elif still_open.get(character):
            while (closed := stack.pop()) != character:
                still_open[closed] -= 1
            still_open[character] -= 1
        if not stack:
            return position + 1
    return len(name)


_LENGTH = re.compile(r"[0-9]{1,9}(?![0-9])")


def _mangled_path(symbol: str) -> str:
    """Return the names at the start of an Itanium symbol, joined; empty if there are none.

    `_ZN5aiter8add_rmsnIfEEvv` is `_Z`, `N` for a nested name, then length and text in turn. A
    length of more digits than any name has is none.
    """
    at = 3 if symbol.startswith("_ZN") else 2
    parts = []
    while length := _LENGTH.match(symbol, at):
        at = length.end() + int(length[0])
        part = symbol[length.end() : at]
        parts.append(ANONYMOUS if part.startswith("_GLOBAL__N_") else part)
        if not symbol.startswith("_ZN"):
            break
    return "::".join(parts)


# --------------------------------------------------------------------------- element type

_SPACES: Final = r"(?:\w+::|\(anonymous namespace\)::|<unnamed>::)*"
_TYPE: Final = r"(OpaqueType<\d+|complex<\w+|(?:un)?signed \w+|\w+)"
_ELEMENT: Final = bounded(
    rf"(?:CatArrayBatchedCopy\w*|multi_tensor_apply_kernel.*?\b(\w*)Functor)<{_SPACES}{_TYPE}"
    rf"(?:, *{_SPACES}{_TYPE})?"
)
_ELEMENTS: Final = {
    "float": "f32", "double": "f64", "Half": "f16", "__half": "f16", "BFloat16": "bf16",
    "long": "i64", "int": "i32", "short": "i16", "signed char": "i8", "char": "i8",
    "unsigned char": "u8", "bool": "bool", "complex<Half": "c32", "complex<float": "c64",
    "complex<double": "c128", "OpaqueType<1": "bits8", "OpaqueType<2": "bits16",
    "OpaqueType<4": "bits32", "OpaqueType<8": "bits64", "OpaqueType<16": "bits128",
}  # fmt: skip


_REDUCED: Final = bounded(
    r"[nr]ccl(?:Dev)?(?:Kernel_)?(?:AllReduce|ReduceScatter|Reduce)(?=[A-Z_])\w*?"
    r"_(?:(bf16|[fiu](?:8|16|32|64)|f8e\wm\d)(?=_|\W|$)|(?:Sum|Prod|Min|Max|Avg)\w*?_"
    r"_*(half|float|double|(?:nv_|hip_)?bfloat16|u?int(?:32|64)_t)(?=_|\W|$))"
)
"""Collectives that add say the element type; those that only move count bytes."""
_REDUCED_TYPES: Final = {
    "half": "f16", "float": "f32", "double": "f64", "nv_bfloat16": "bf16",
    "hip_bfloat16": "bf16", "bfloat16": "bf16", "int32_t": "i32", "uint32_t": "u32",
    "int64_t": "i64", "uint64_t": "u64",
}  # fmt: skip


def elements_of(name: str) -> tuple[str, ...]:
    """Return the element types that kernels for lists of tensors say they work on.

    Kernels of NCCL that add have theirs, as in `ncclDevKernel_AllReduce_Sum_f16_RING_LL`.

    `CatArrayBatchedCopy<OpaqueType<2u>, …>` moves elements of 16 bits, whatever they are: its
    type is `bits16`. In a foreach kernel it is the functor's first argument; `CopyFunctor` has
    the type of its targets and that of its sources. Other functors of two types do not say which
    list has which.

    Returns:
        None, one for all lists, or one for each.
    """
    if reduced := _REDUCED.match(name):
        word = reduced[1] or reduced[2]
        return (_REDUCED_TYPES.get(word, word),)
    found = _ELEMENT.search(name)
    if found is None or found[2] not in _ELEMENTS:
        return ()
    first, second = _ELEMENTS[found[2]], _ELEMENTS.get(found[3] or "")
    if found[1] is None or second is None:  # a concatenation's second type is that of offsets
        return (first,)
    if found[1] == "Copy":
        return first, second
    return (first,) if first == second else ()


_FLOAT: Final = "bf16|tf32|f16|fp16|f32|fp32|f64|fp64"
_BLAS: Final = re.compile(
    rf"(?<![A-Za-z0-9])(?:({_FLOAT})_)?([sdh])([0-9]{{0,6}})(?:gemm|cudnn)"
    rf"(?:_(?:relu_)?({_FLOAT})(?![A-Za-z0-9]))?(?![a-z0-9])"
)
"""A product of cuBLAS, cuDNN or CUTLASS: result, letter of the sum, instruction, operands."""
_XMMA: Final = re.compile(rf"xmma_\w{{0,80}}?_({_FLOAT})({_FLOAT})_({_FLOAT})")
"""Both operands and the result."""
_NVJET: Final = re.compile(r"nvjet_(?:sm\d{2,3}_)?([hts])\w([hts])_")
"""Operands and result."""
_ARGUMENT: Final = re.compile(
    r"(?:[<,]\s?|lambda\()(?:\w{1,40}::){0,8}(float|double|Half|__half2?|half2?|half_t|BFloat16|__nv_bfloat162?|bfloat16_t)"
    r"(?=(?: const)?\s?(?:[>,)]|\Z))"
)
_CASTS: Final = re.compile(
    r"WithCast|gpu_kernel_impl<|[fF](?:loat|p)8|int8|complex|\bchar\b(?!\s?\*)|quant|dequant"
)
"""Kernels that may read and write other types than they compute in, or than are known here."""
_TF32: Final = re.compile(r"cutlass_8\d_tensorop_s1688gemm_(?![bft])")
"""Where CUTLASS names no type, its instruction has only one: TF32, of tensors of f32."""
_SPELLED: Final = {
    "fp16": "f16", "fp32": "f32", "tf32": "f32", "fp64": "f64", "s": "f32", "d": "f64", "h": "f16",
    "t": "bf16", "float": "f32", "double": "f64", "Half": "f16",
    "__half": "f16", "__half2": "f16", "half": "f16", "half2": "f16", "half_t": "f16",
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "__nv_bfloat162": "bf16", "bfloat16_t": "bf16",
}  # fmt: skip


@lru_cache(_CACHE_SIZE)
def element_of(kernel: str) -> str | None:
    """Return the one floating type that a kernel reads and writes; None if its name says less.

    `volta_sgemm_128x64_nn` and `CUDAFunctor_add<float>` say f32, `ampere_fp16_s16816gemm_fp16_…`
    f16; with 16-bit operands and a result of f32 there is no one type. Beside template arguments
    of 16 bits those of f32 are what the kernel adds up in.
    """
    kernel, short = kernel[:TELLING], short_name(kernel)[:TELLING]
    # Without the arguments of the function itself, which say nothing of its tensors.
    template = kernel.partition(">(")[0]
    if "lambda(" not in template:
        template = template[template.find("<") :] if "<" in template else ""
    types = [_SPELLED[word] for word in _ARGUMENT.findall(template)]
    if _CASTS.search(kernel):
        return None
    if _TF32.search(kernel):
        return "f32"
    if blas := _BLAS.search(kernel):
        result, letter, instruction, operands = blas.groups()
        named = _one_type(letter)
        if letter == "s" and (instruction or result or operands):
            named = _one_type(result or letter, operands or "")
        return named if {*types} <= {named} else None
    if found := _XMMA.search(short) or _NVJET.match(short):
        return _one_type(*found.groups())
    first, *rest = types or [""]
    if not {*rest} <= {first, "f32"}:
        return None
    in_16_bits = first in ("f16", "bf16") and (first in rest or "layer_norm" in short)
    return first or None if {*rest} <= {first} or in_16_bits else None


def _one_type(*words: str) -> str | None:
    found = {_SPELLED.get(word, word) for word in words}
    return found.pop() or None if len(found) == 1 else None


# --------------------------------------------------------------------------- kind of work

_WRAPPER = bounded(f"(?x){NAMES['wrappers']}")

_RULES: Final = tuple(
    (kind, bounded(f"(?x){words}")) for kind, words in NAMES["categories"].items()
)

_INDUCTOR: Final = re.compile(r"triton_(?:poi|per|red|for)_")
"""Inductor's pointwise kernels and reductions: their names list also ops that others do."""
_INDUCTOR_RULES: Final = tuple(
    rule for rule in _RULES if rule[0] not in (*MATRIX_WORK, "comm", "memcpy", "memset")
)

_FUNCTORS: Final = tuple((kind, re.compile(words)) for kind, words in NAMES["functors"].items())


@lru_cache(_CACHE_SIZE)
def category_by_name(kernel: str) -> str | None:
    """Return the kind of work, as in column `category`; None if the name does not say it."""
    kernel, short = kernel[:TELLING], short_name(kernel)[:TELLING]
    if _INDUCTOR.match(short):
        return _first(short, _INDUCTOR_RULES)
    if short.endswith("elementwise_kernel") or "elementwise_kernel_" in short:
        found = (category for category, words in _FUNCTORS if words.search(kernel))
        return next(found, _first(short) or "elementwise")
    category = _first(short)
    if category is None or _WRAPPER.search(short):
        return _first(kernel) or category
    return category


def _first(text: str, rules: tuple[tuple[str, re.Pattern[str]], ...] = _RULES) -> str | None:
    return next((category for category, words in rules if words.search(text)), None)


# --------------------------------------------------------------------------- helpers

_HELPERS: Final = bounded(f"(?x){NAMES['helpers']}")
_MOVERS: Final = bounded(f"(?x){NAMES['movers']}")


@lru_cache(_CACHE_SIZE)
def only_moves(kernel: str) -> bool:
    """Say whether a kernel of this name works on each element, sums, copies or communicates.

    It may be the whole work of its op, but beside another kernel it is not the matrix product.
    """
    return _MOVERS.search(short_name(kernel[:TELLING])) is not None


@lru_cache(_CACHE_SIZE)
def is_helper(kernel: str) -> bool:
    """Say whether the kernel only prepares or finishes the work of another kernel of its op.

    Such are split-K sums, layout changes, tables of offsets, and the passes of attention before
    and after the products. The op's FLOPs belong to its main kernel.
    """
    return _HELPERS.search(kernel[:TELLING]) is not None
