"""Reading the name of a kernel: its short form, its kind of work, whether it is a helper.

A name is what the compiler made of a C++ function (`void ns::name<args>(types)`), a bare word
from a code generator (`nvjet_tst_…`, `triton_poi_…`, `Cijk_…`), or a mangled symbol (`_ZN…`).
Profilers cut names, and write the unnamed namespace and lambdas in ways of their own.

The op that launched a kernel says more than its name; the name counts where there is no op,
and to recognise communication and helper kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pyprof2.analysis.categories import MATRIX_WORK

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


def elements_of(name: str) -> tuple[str, ...]:
    """Return the element types that PyTorch's kernels for lists of tensors say they work on.

    `CatArrayBatchedCopy<OpaqueType<2u>, …>` moves elements of 16 bits, whatever they are: its
    type is `bits16`. In a foreach kernel it is the functor's first argument; `CopyFunctor` has
    the type of its targets and that of its sources. Other functors of two types do not say which
    list has which.

    Returns:
        None, one for all lists, or one for each.
    """
    found = _ELEMENT.search(name)
    if found is None or found[2] not in _ELEMENTS:
        return ()
    first, second = _ELEMENTS[found[2]], _ELEMENTS.get(found[3] or "")
    if found[1] is None or second is None:  # a concatenation's second type is that of offsets
        return (first,)
    if found[1] == "Copy":
        return first, second
    return (first,) if first == second else ()


# --------------------------------------------------------------------------- kind of work

_WRAPPER = bounded(
    r"""(?x)
    cutlass\w*::(?:Kernel2?|device_kernel|kernel) | kentry | ^(?:\w+::)*kernel$
    | elementwise_kernel | multi_tensor_apply_kernel | globalKernel
    """
)
"""Short names of wrappers: only their template arguments name the work."""

_CATEGORIES: Final = (
    ("memset", r"^Memset|(?<![a-z])memset"),
    ("memcpy", r"^Memcpy|(?<![a-z])memcpy"),
    (
        "comm",
        r"""nccl|rccl|deep_ep|nvshmem|rocshmem|multimem|mscclpp?|symm_mem|cross_device_reduce
        |(?i:all_?reduce|all_?gather|all_?to_?all|all2all|reduce_scatter|reducescatter)
        |lamport|quick_?reduce|userbuffers""",
    ),
    (
        "attention",
        r"""(?i:(?<!rot_)attention|fmha|flash_?(?:fwd|bwd|attn|mla)|flashattn|sdpa)
        |(?:^|[_:])attn|_attn(?:_|$)|(?<![a-z])mha_|xqa|qk_int8?_sv|dot_do_o|convert_d[qkv]
        |(?:Prefill|Decode)With\w*KVCache|MergeStates|_mla_|mqa_logits""",
    ),
    (
        "conv",
        r"""(?i:(?<![a-z])conv(?!ert)|convolution|convolve)|Conv(?!ert)|fprop|dgrad|wgrad
        |[sdhi]cudnn_|winograd|Winograd|(?i:(?:im|vol)2(?:d2)?col|col2(?:im|vol))|igemm_(?:fwd|bwd|wrw)|cask_cudnn
        |fft2d_|nchwToNhwc|nhwcToNchw|batched_transpose_\d|NCHW2CNHW|CNHW2NCHW""",
    ),
    ("rnn", r"LSTM|(?<![A-Za-z])GRU|RNN_|RNNcell|(?<![a-z])(?:lstm|gru)_"),
    (
        "matmul",
        r"""(?i:(?<!fb)gemm|gemv|matmul|nvjet|marlin|fused_moe|splitk_?reduce)|Cijk
        |(?<![a-z])(?:b|add)?mm(?![a-z])|^bmm_|xmma|cutlass|cublas\w*::|magma_|globalKernel
        |^dot_kernel$|^reduce_1Block_kernel$|^reduce_segments$""",
    ),
    (
        "embedding",
        r"(?i)(?<!rotary_)(?<!rotary)embedding(?!s?_pos)|embedding_?bag|_embs_|bounds_check_ind",
    ),
    ("optimizer", r"multi_tensor_apply|(?i:(?<![a-z])adam|adagrad|lamb_|sgd_)|kOptimizer"),
    (
        "norm",
        r"""(?i:layer_?norm|batch_?norm|group_?norm|rms_?norm|instance_?norm)|bn_[fb]w
        |RowwiseMoments|GammaBeta|ComputeInternalGradients|ComputeFusedParams
        |ComputeBackwardFusedParams|(?<![a-z])ln_(?:fwd|bwd)""",
    ),
    (
        "loss",
        r"(?i)nll_?loss|classnll|cross_?entropy|(?<![a-z])mse_|ctc_loss|kl_div|huber|l1_loss",
    ),
    ("softmax", r"(?i)soft_?max"),
    ("pool", r"(?i)(?<![a-z])(?:max|avg|average|adaptive\w*)_?pool|pooling"),
    ("random", r"distribution_|(?i:philox|curand|hiprand|randperm)"),
    ("sort", r"(?i)(?<![a-z])sort|radix_?sort|bitonic|merge_?sort|top_?k|kthvalue"),
    ("cat", r"CatArray|(?<![a-z])concat"),
    (
        "index",
        r"""(?i)gather|scatter|(?<![a-z])index|indices|take_kernel|nonzero|searchsorted
        |masked_select|unique|(?<![a-z])select_""",
    ),
    (
        "copy",
        r"""(?i)copy|transpose|permut|kv_?cache|reshape_and_cache|(?<![a-z])cast_
        |convert_?tensor""",
    ),
    ("fft", r"(?i)(?:regular|vector|bluestein|radix)\w*_fft|(?<![a-z])fft_|_fft"),
    ("reduce", r"(?i)reduc|cumsum|(?<![a-z])scan|DeviceScan|triton_(?:red|per)_|argm(?:ax|in)"),
    (
        "elementwise",
        r"""(?i)elementwise|pointwise|triton_poi_|unrolled|act_and_mul|rotary|(?<![a-z])rope
        |quantiz|silu|gelu|swiglu|(?<![a-z])relu|dropout|(?<![a-z])fill""",
    ),
)
"""Category and its words, the most specific first; matched on the short name."""

_RULES: Final = tuple((category, bounded(rf"(?x){words}")) for category, words in _CATEGORIES)

_INDUCTOR: Final = re.compile(r"triton_(?:poi|per|red|for)_")
"""Inductor's pointwise kernels and reductions: their names list also ops that others do."""
_INDUCTOR_RULES: Final = tuple(
    rule for rule in _RULES if rule[0] not in (*MATRIX_WORK, "comm", "memcpy", "memset")
)

_FUNCTORS: Final = (
    ("norm", re.compile(r"GroupNorm|LayerNorm|BatchNorm|[Rr]ms_?norm")),
    ("loss", re.compile(r"mse_|smooth_l1|huber|binary_cross_entropy|kl_div|nll_")),
    ("optimizer", re.compile(r"multi_tensor_apply|[Aa]dam|[Ss]gd|SGD|Lamb")),
    ("copy", re.compile(r"direct_copy_kernel|\bcopy_kernel|_copy_kernel_cuda|CopyFunctor")),
    ("random", re.compile(r"distribution_nullary|bernoulli|random_")),
    ("index", re.compile(r"index_|gather|scatter")),
)
"""Words of the functors that generic pointwise kernels apply."""


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

_HELPERS: Final = bounded(
    r"""(?x)
    # matrix products: sum the parts of a split K, apply the epilogue, prepare pointers
    (?i:split_?k_?reduc|reduce_?split_?k|stream_?k\w*(?:fixup|reduc)|(?<![a-z])fixup)
    | PostGSU | reduce_segments | _finalize_matmul | reduce_1Block_kernel
    | epilogue::impl::globalKernel | (?<![a-z])scal_kernel<.*cublas
    | compute_gemm_pointers | prepare_grouped_gemm | get_group(?:ed)?_gemm_starts
    | computeStrides | moe_align_block_size | transpose_(?:and_pack_)?fp32
    # convolutions: change the layout, make tables of offsets, transform for Winograd and FFT
    | (?i:nchw_?(?:to|2)_?\w*nhwc|nhwc_?(?:to|2)_?\w*nchw|nchw2cnhw|cnhw2nchw)
    | batched_transpose_\d | compute\w*Offsets | kern_precompute_indices | flip_filter
    | scalePackedTensor | SubTensorOpWith | (?i:(?:im|vol)2(?:d2)?col|col2(?:im|vol))
    | winograd_nonfused:: | generateWinogradTiles | fft2d_[rc]2[rc] | reduce_wgrad
    # attention: passes before and after the products
    | dot_do_o | DotDoO | SumOdO | OGradDotO | _bwd_odo | convert_d(?:q|k|v|kv)(?![a-z])
    | clear_dkvaccum | [bB]wd_?[pP](?:re|ost)process | Backward(?:Pre|Post)process
    | (?:BwdConvert|BwdConvertQGrad|dq_convert) | prepare_varlen | get_mla_metadata
    | (?i:(?:splitkv|split_kv|mla|fwd|forward|flash)\w*_?combine) | MergeStates
    | fmhaReductionKernel | FmhaMlaReduction | paged_attention_\w*reduce
    # workspaces
    | (?i:(?<![a-z])memset|zero_?workspace|init_?workspace)
    """
)


_MOVERS: Final = bounded(
    r"""(?x)
    # PyTorch, cub and rocPRIM
    (?:^|::)(?:\w*elementwise_kernel\w* | reduce_kernel\w* | CatArrayBatchedCopy\w*)$
    | (?:cub|rocprim)::\S*Reduce
    # cuDNN and MIOpen: add a bias, sum its gradient, pad, change the layout
    | (?:^|::)(?:op_?tensor|add_?tensor|tensorTransform) | (?:^|::)n\w+AddPadding
    | ^Op\d?d?Tensor | ConvBwdB(?:ias)?$
    # Inductor: pointwise and reductions
    | ^triton_(?:poi|per|red|for)_
    | ^(?:nccl|rccl)
    """
)


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
