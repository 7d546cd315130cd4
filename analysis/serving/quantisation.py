"""How many bits a weight has by a model's configuration, scales included, and in what it is used.

There are as many ways to say it as there are tools; of each those keys are read that decide the
bits, and what is not known is refused.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable

DENSE_BITS: Final = 16
DENSE_TYPE: Final = "bf16"
_MXFP4: Final = 4.25
_NVFP4: Final = 4.5
"""8 bits of scales for 32 weights, or for 16."""
_IGNORED: Final = (
    "modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "exclude",
)  # fmt: skip


class WrongConfigError(Exception):
    """Why a configuration is not taken."""


def refuse(why: str) -> NoReturn:
    """Refuse a configuration.

    Raises:
        WrongConfigError: always.
    """
    raise WrongConfigError(why)


class Quantisation(NamedTuple):
    """The form of the weights that are quantised.

    Attributes:
        bits: of a weight, its share of the scales included.
        type: in which products with it are computed, as devices name it; where only weights are
            quantised, the dense type.
        kept: names of modules that are not quantised; those that begin with `re:` are expressions.
        cache_bits: of keys and values; None: it does not say.
    """

    bits: float = DENSE_BITS
    type: str = DENSE_TYPE
    kept: tuple[str, ...] = ("*",)
    cache_bits: int | None = None

    def share_kept(self, modules: Iterable[Sequence[str]]) -> float:
        """Return the share of modules that are not quantised.

        Args:
            modules: of each the names that it may have.
        """
        whether = [any(self._is_kept(name) for name in names) for names in modules]
        return sum(whether) / len(whether) if whether else 1.0

    def _is_kept(self, module: str) -> bool:
        for name in self.kept:
            if name.startswith("re:"):
                try:
                    if re.match(name[3:], module):
                        return True
                except re.error as error:
                    msg = f"quantization_config: {name!r} is no expression"
                    raise WrongConfigError(msg) from error
            elif f".{name}." in f".{module}." or any(
                fnmatch.fnmatchcase(module, each) for each in (name, f"{name}.*")
            ):
                return True
        return False


def quantisation_of(config: Mapping[str, Any], beside: Mapping[str, Any] | None) -> Quantisation:
    """Return the form of a model's weights.

    Args:
        config: of the model.
        beside: the content of `hf_quant_config.json`; None: there is none.

    Raises:
        WrongConfigError: it is not known.
    """
    how = config.get("quantization_config") or (beside or {}).get("quantization")
    if not how:
        return Quantisation()
    if not isinstance(how, Mapping):
        raise _not_known(how)
    names = [name for key in _IGNORED for name in how.get(key) or () if isinstance(name, str)]
    kept = tuple(name.replace("language_model.", "") for name in names)
    cache = how.get("kv_cache_scheme") or how.get("kv_cache_quant_algo")
    bits, kind = _bits(how)
    return Quantisation(bits, kind, kept, 8 if cache else None)


def _bits(how: Mapping[str, Any]) -> tuple[float, str]:
    """Return the bits of a weight and the type of products with it."""
    method = how.get("quant_method") or ("modelopt" if "quant_algo" in how else None)
    if method == "mxfp4":
        return _MXFP4, DENSE_TYPE
    if method in ("fp8", "fbgemm_fp8"):
        return 8 + _of_block(how.get("weight_block_size")), "f8"
    if method in ("awq", "gptq"):
        # A scale and a zero for each group.
        bits, group = _whole(how, "bits"), _whole(how, "group_size")
        return bits + (DENSE_BITS + bits) / group, DENSE_TYPE
    if method == "modelopt":
        known = {"NVFP4": (_NVFP4, "f4"), "FP8": (8, "f8"), "MXFP4": (_MXFP4, DENSE_TYPE)}
        if found := known.get(str(how.get("quant_algo")).upper()):
            return found
    if method == "compressed-tensors":
        return _of_groups(how)
    if method == "quark" and not how.get("layer_quant_config"):
        weight = (how.get("global_quant_config") or {}).get("weight") or {}
        known = {"fp4": (_MXFP4, DENSE_TYPE), "fp8_e4m3": (8, "f8")}
        if found := known.get(str(weight.get("dtype"))):
            return found
    raise _not_known(method)


def _of_groups(how: Mapping[str, Any]) -> tuple[float, str]:
    """Return bits and type where groups of modules have schemes: of one that has all of them."""
    groups = list((how.get("config_groups") or {}).values())
    if len(groups) != 1 or groups[0].get("targets") != ["Linear"]:
        refuse("quantization_config: config_groups are not one for all modules")
    weights, inputs = groups[0].get("weights") or {}, groups[0].get("input_activations")
    bits, is_float = _whole(weights, "num_bits"), weights.get("type") == "float"
    of_type = {8: "f8" if is_float else "i8", 4: "f4" if is_float else DENSE_TYPE}
    kind = of_type.get(bits, DENSE_TYPE) if inputs else DENSE_TYPE
    if bits == 4 and is_float:
        return {16: _NVFP4, 32: _MXFP4}[_whole(weights, "group_size")], kind
    if bits == 8:
        return 8 + _of_block(weights.get("block_structure")), kind
    return bits + DENSE_BITS / _whole(weights, "group_size"), kind


def _of_block(block: Any) -> float:
    """Return the bits of a weight's share of the scale of its block, which has 32."""
    if block is None:
        return 0
    sizes = [each for each in block if isinstance(each, int) and each > 0]
    if len(sizes) != 2:
        refuse(f"quantization_config: {block!r} is no block")
    return 32 / (sizes[0] * sizes[1])


def _whole(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if not isinstance(value, int) or not 0 < value <= 1 << 16:
        refuse(f"quantization_config: {key} {value!r} is no size")
    return value


def _not_known(what: object) -> WrongConfigError:
    return WrongConfigError(f"quantization_config: {what!r} is not known")
