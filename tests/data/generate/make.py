"""Record `generate` of Hugging Face on a CPU: a cache that grows, a static one, and drafts.

Run in this folder where torch and transformers are installed (made with 2.13.0 and 5.24.0). Of each
recording only the calls of `generate` and of models are kept, and the ops whose shapes say what a
step was.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

KEPT = re.compile(r"nn\.Module: LlamaForCausalLM_\d+|.*transformers/generation/.*: generate")
OPS = ("aten::embedding", "aten::scaled_dot_product_attention")
FOLDER = re.compile(r"^.*(?=transformers/generation/)")


def model(layers: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, vocab_size=100, max_position_embeddings=128, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def record(name: str, own: LlamaForCausalLM, ids: torch.Tensor, **options: Any) -> None:
    def run() -> None:
        own.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False, **options
        )

    with torch.no_grad():
        run()
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True,
            with_modules=True,
            experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
        ) as recorded:  # fmt: skip
            run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole.json"
        recorded.export_chrome_trace(str(path))
        document = json.loads(path.read_text())
    events = [
        event | {"name": FOLDER.sub("", event["name"])}
        for event in document["traceEvents"]
        if event.get("name") in OPS or KEPT.fullmatch(event.get("name", ""))
    ]
    text = json.dumps(document | {"traceEvents": events, "traceName": name})
    Path(f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


torch.manual_seed(0)
torch.set_num_threads(1)
TARGET, DRAFT = model(4), model(1)
PROMPTS = torch.randint(3, 99, (2, 10))
record("dynamic", TARGET, PROMPTS)
record("static", TARGET, PROMPTS, cache_implementation="static")
record("assisted", TARGET, PROMPTS[:1], assistant_model=DRAFT)
