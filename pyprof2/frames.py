"""Frames of Python stacks as recorders write them: `path/file.py(123): function`.

A *stack* is text: `path:line` of each frame outside of torch, one to a line, the innermost first.

The hashes of the lines of a file say whether a line is still the one that was recorded, and are no
copy of it: a store keeps them in its manifest under `code`, for each file of the user's own that
was there unchanged since the recording began.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

STACK_SEPARATOR: Final = " > "
"""The separator of the lines of a stack that is shown, the outermost first."""

_FRAME: Final = re.compile(r"(?P<path>.+?)\((?P<line>\d+)\)(?:: .*)?", re.DOTALL)
_LIBRARY: Final = re.compile(
    r"""(?:^|-packages/)(?:torch|pyprof2)/|(?:^|/)(?:
        torchgen/|functorch/                          # the framework
      | torch/(?:_\w+|accelerator|amp|ao|autograd|backends|compiler|contrib|cpu|cuda|distributed
          |distributions|export|fft|func|futures|fx|jit|linalg|masked|monitor|mps|mtia
          |multiprocessing|nativert|nested|nn|numa|onnx|optim|package|profiler|quantization|signal
          |sparse|special|testing|utils|xpu)/         # and no other folder of this name
      | torch/(?:_\w+|functional|hub|library|overrides|quasirandom|random|return_types
          |serialization|storage|torch_version|types|version)\.py
      | pyprof2/pyprof2/                              # ourselves: a checkout, and
      | pyprof2/(?:capture|cli|integrations|nvtx|watch)/           # what a program runs of us
      | pyprof2/(?:__\w+__|columns|errors|frames|markers|own_files|signatures|units)\.py
      | lib(?:64)?/python\d[\d.]*/(?!site-packages/|dist-packages/)   # the standard library
    )""",
    re.VERBOSE,
)

_WINDOWS_LIBRARY: Final = re.compile(r"[A-Za-z]:/(?:.*/)?Lib/(?!site-packages/)")
"""Windows has the standard library in `Lib`, beside the interpreter."""
_PACKAGES: Final = re.compile(r"(?:^|/)(?:site|dist)-packages/")
# Recorders cut the folders that Python imports from off: of packages only their own path is left.
_KNOWN_PACKAGES: Final = {
    "PIL", "accelerate", "aiter", "apex", "bitsandbytes", "cv2", "deepspeed", "detectron2",
    "diffusers", "einops", "fairscale", "fairseq", "fastai",
    "flash_attn", "fsspec", "huggingface_hub", "jax", "lightning",
    "lightning_fabric", "liger_kernel", "mmcv", "mmengine", "monai", "numpy",
    "omegaconf", "open_clip", "optimum", "pandas", "peft", "pyarrow", "pytorch_lightning",
    "safetensors", "scipy", "sentence_transformers", "sentencepiece", "sglang", "sklearn",
    "tensorflow", "timm", "tokenizers", "torch_geometric", "torch_scatter", "torch_xla", "torchao",
    "torchaudio", "torchmetrics", "torchtext", "torchtitan", "torchtune", "torchvision", "tqdm",
    "transformer_engine", "transformers", "triton", "trl", "unsloth", "vllm", "wandb", "xformers",
}  # fmt: skip
_TEMPORARY_CELL: Final = re.compile(r"(?:.*/)?ipykernel_\d+/\d+\.py")
_NUMBERED_CELL: Final = re.compile(r"<ipython-input-(\d+)-\w+>")

_TEMPLATE: Final = "html?|xml|txt|mako?|jinja2?|j2|tmpl|tpl"
_GENERATED: Final = re.compile(
    rf"""(?s:
        .*\.(?!(?:py|pyw|pyx|pxd|pxi|ipynb)\Z)[^.]*  # not Python: a template, `x.py:codegen(y)`
      | .*\.(?:{_TEMPLATE})\.pyw?                    # a template that was translated to Python
      | .*_(?:{_TEMPLATE}) | memory:0x[0-9a-f]+      # the same, in memory
      | [0-9a-f]{{32,}}\.py                           # a hash: what a compiler keeps
      | (?=[a-z2-7]{{32}})[a-z]+(?:[2-7]+[a-z]+){{3,}}[2-7]*\.py
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""Names of files that a program wrote, whatever the folder that it keeps them in."""

_HASH_LENGTH: Final = 32

# A folder of the user's own may be named like a module, such as `code` or `types`.
_LIBRARY_PACKAGES: Final = {
    "asyncio", "collections", "compression", "concurrent", "ctypes", "curses", "dbm",
    "distutils", "email", "encodings", "ensurepip", "html", "http", "idlelib", "importlib",
    "json", "lib2to3", "logging", "multiprocessing", "pathlib", "pydoc_data", "re", "sqlite3",
    "string", "sysconfig", "tkinter", "tomllib", "turtledemo", "unittest", "urllib", "venv",
    "wsgiref", "xml", "xmlrpc", "zipfile", "zoneinfo",
}  # fmt: skip


def parse_frame(text: str) -> tuple[str, int] | None:
    """Return the path and line of a frame; None for built-ins and what is no frame."""
    match = _FRAME.fullmatch(text)
    return (match["path"], int(match["line"])) if match and len(match["line"]) < 10 else None


def is_generated(path: str) -> bool:
    """Whether a program wrote the code: a compiler, a template engine, or what calls `exec`.

    Nobody can look at a line of it: it is not in a file, or in one that is named after a hash.
    """
    folder, _, name = path.replace("\\", "/").rpartition("/")
    # torch.compile keeps a file in the folder that is named after two letters of its hash.
    is_kept = len(name) > _HASH_LENGTH and folder.rpartition("/")[2] == name[1:3]
    return path.startswith("<") or is_kept or bool(_GENERATED.fullmatch(name))


def is_user_path(path: str) -> bool:
    """Whether a person wrote a file, and it is not torch, pyprof2, or the standard library.

    Recorders cut the prefix of `sys.path` off, so the standard library shows as `threading.py`
    or `asyncio/events.py`.
    """
    path = path.replace("\\", "/")
    if is_generated(path) or _LIBRARY.search(path) or _WINDOWS_LIBRARY.match(path):
        return False
    first, slash, _ = path.partition("/")
    library = _LIBRARY_PACKAGES if slash else sys.stdlib_module_names
    return first.removesuffix(".py") not in library


def is_own_path(path: str, root: str | None = None) -> bool:
    """Whether a file is the user's own: with a root it is below that, and else in no package.

    A relative path counts as below the root. Installed packages are nobody's own wherever they
    are, such as in a virtual environment below the root, nor is the standard library.
    """
    path = path.replace("\\", "/")
    if is_generated(path):
        return False
    if _TEMPORARY_CELL.fullmatch(path):
        return True
    if root is not None and is_absolute(path):
        folder = root.replace("\\", "/").rstrip("/") + "/"
        if not path.startswith(folder):
            return False
        below = path.removeprefix(folder)
        return not _LIBRARY.search(below) and not _PACKAGES.search(f"/{below}")
    return is_user_path(path) and package_of(path) is None


def is_absolute(path: str) -> bool:
    """Whether a path begins at the root of a file system, Windows' too."""
    return path.startswith(("/", "\\")) or path[1:3] in (":/", ":\\")


def absolute(root: Path | str) -> str:
    """Return a folder as recordings name it; it need not be on this machine."""
    return str(root) if is_absolute(str(root)) else str(Path(root).absolute())


def package_of(path: str) -> str | None:
    """Return the top-level package of an installed file; None where it shows no such."""
    parts = _PACKAGES.split(path.replace("\\", "/"))
    first, slash, _ = parts[-1].partition("/")
    if len(parts) > 1 or (slash and first in _KNOWN_PACKAGES):
        return first.removesuffix(".py")
    return None


def library_of(line: str) -> str:
    """Return what to call the library of a `path:line`: its package, else the file's folder."""
    path = line.rpartition(":")[0].replace("\\", "/")
    folder, slash, name = path.rpartition("/")
    if is_absolute(path):
        return package_of(path) or folder
    return package_of(path) or (path.partition("/")[0] if slash else name.removesuffix(".py"))


def shown_line(line: str, roots: Collection[str]) -> str:
    """Return a `path:line` as people want to see it: from a root, or from its package on."""
    for root in roots:
        folder = root.rstrip("/\\") + ("\\" if "\\" in root else "/")
        if line.startswith(folder) and not _PACKAGES.search(line.replace("\\", "/")):
            return line.removeprefix(folder)
    return _PACKAGES.split(line.replace("\\", "/"))[-1] if _PACKAGES.search(line) else line


def frame_line(frame: str) -> str | None:
    """Return `path:line` of a frame outside of torch, else None; a notebook's cell by number."""
    parsed = parse_frame(frame)
    return None if parsed is None else user_line(*parsed)


def user_line(path: str, line: int) -> str | None:
    """Return `path:line` of code outside of torch, else None; a notebook's cell by number."""
    cell = _NUMBERED_CELL.fullmatch(path)
    if cell is not None:
        return f"cell {cell[1]}:{line}"
    return f"{path}:{line}".replace("\n", " ") if is_user_path(path) else None


WIDTH: Final = 8
"""Hexadecimal digits of a line's hash: two of a million lines differ but for 1 in 4000."""
LARGEST: Final = 1 << 21
"""Bytes of the largest file that is hashed; code that people write is smaller."""
_MOST_FILES: Final = 500
_END: Final = re.compile(r"\r\n|\n|\r")


class Code(TypedDict):
    """The facts of a file of code.

    Attributes:
        path: as the recording names it.
        sha256: of its bytes.
        lines: the hashes of its lines, one after another.
    """

    path: str
    sha256: str
    lines: str


def line_hashes(source: str) -> str:
    """Return the hashes of lines, without the blanks around them, one after another."""
    from hashlib import blake2b  # OpenSSL, which no command that only reads a store needs

    lines = (line.strip().encode("utf-8", "surrogatepass") for line in _END.split(source))
    return "".join(blake2b(line, digest_size=WIDTH // 2).hexdigest() for line in lines)


def code_of(paths: Iterable[str], began: float) -> Iterator[Code]:
    """Yield what is known of the files that are there and were not changed since.

    Args:
        paths: as the recording names them; what is no full path of a `.py` file is left out.
        began: when the recording began, in seconds since the epoch.
    """
    from hashlib import sha256

    for path in list(paths)[:_MOST_FILES]:
        content = _content(Path(path), began)
        if content is not None:
            source = content.decode("utf-8", "replace")
            yield Code(
                path=path,
                sha256=sha256(content).hexdigest(),
                lines=line_hashes(source.removeprefix("\ufeff")),
            )


def _content(path: Path, began: float) -> bytes | None:
    try:
        # A trace may name any file of who reads it: only code is looked at.
        if path.suffix != ".py" or not path.is_absolute() or not path.is_file():
            return None
        found = path.stat()
        if found.st_mtime > began or found.st_size > LARGEST:
            return None
        return path.read_bytes()
    except (OSError, ValueError):
        return None
