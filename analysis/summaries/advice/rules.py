"""The register of rules, in the order of the page on advice."""

from __future__ import annotations

from typing import Final

from pyprof2.analysis.summaries.advice import (
    compiled,
    cpu,
    device,
    host,
    job,
    memory,
    ranks,
    recording,
    server,
)
from pyprof2.analysis.summaries.advice.findings import BOTH, CPU, Rule

_WARM_UP: Final = "record later steps: schedule(wait=…, warmup=…), capture --steps A:B"

RULES: Final = (
    Rule(
        "data-loading", "Waiting for data",
        "idle time of data loading, or what a replay without it gains, is 5 % of the time or more",
        "more workers (num_workers), pin_memory=True, prefetch_factor, less work per sample",
        host.data_loading, on=BOTH,
    ),
    Rule(
        "host-bound", "The host is too slow for the device",
        "ops, Python, launches and what was not recorded leave the device idle for 10 % of the "
        "time or more, with a stretch of 20 such gaps; or ops and Python do, in gaps of 0.5 ms",
        "torch.compile(mode='reduce-overhead') or CUDA graphs, larger batches, fused ops",
        host.host_bound,
    ),
    Rule(
        "allocator", "Memory is allocated again and again",
        "idle time of the allocator, or what a replay without it gains, is 1 % or more, in two "
        "steps or more after the first",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, no empty_cache() in the loop, the same "
        "shapes in every step, a limit on the workspaces of convolutions",
        host.allocator,
    ),
    Rule(
        "sync", "The host waits for the device in the loop",
        "idle time of sync, or what a replay without it gains, is 1 % or more",
        "keep results on the device: no .item(), .cpu(), nonzero() or boolean index in the loop",
        host.sync,
    ),
    Rule(
        "pageable-copies", "Copies from pageable memory",
        "idle time in calls of copies from pageable memory, or the copies, are 1 % or more",
        "pin_memory=True in the DataLoader, and to(device, non_blocking=True)",
        host.pageable_copies,
    ),
    Rule(
        "recompilation", "Graphs are compiled again",
        "compiling takes 1 % of the time or more",
        "mark_dynamic() for sizes that change, stable shapes; TORCH_LOGS=recompiles says why",
        host.recompilation, on=BOTH,
    ),
    Rule(
        "graph-breaks", "Compiled code is broken up",
        "notes of the compiler, or its log, have breaks of graphs",
        "take what breaks it out of the function (print, .item(), branches on data); "
        "torch.compile(fullgraph=True) stops at the first one",
        compiled.graph_breaks, on=BOTH,
    ),
    Rule(
        "uncompiled", "Ops beside compiled code run one by one",
        "kernels of forward and backward outside of compiled graphs take 5 % of the kernels' time",
        "compile the whole step: the loss, too; fewer graph breaks",
        compiled.uncompiled,
    ),
    Rule(
        "slow-fused", "Fused kernels are far from their roof",
        "kernels of the compiler longer than 10 us, below 30 % of their roof, take 5 % of the time",
        "mode='max-autotune', sizes that are multiples of 16, contiguous inputs",
        compiled.slow_fused,
    ),
    Rule(
        "autotuning", "Kernels are tried out",
        "ranges of autotuning take 1 % or more, or ops run 3 times the kernels of their like",
        "warm up with every shape before; benchmark=False where shapes change",
        host.autotuning,
    ),
    Rule(
        "garbage-collection", "Python collects garbage",
        "recorded collections take 1 % of the time or more",
        "gc.disable(), and gc.collect() every so many steps",
        host.garbage_collection, on=BOTH,
    ),
    Rule(
        "waiting", "A step waits for others",
        "where no device worked, waits for threads and other ranks are 1 % of the time or more",
        "see what they do meanwhile: start it earlier, or give it more threads",
        cpu.waiting, on=CPU,
    ),
    Rule(
        "python", "Python outside of ops",
        "where no device worked, it is 5 % of the time or more",
        "torch.compile, whole tensors instead of loops, and what a step does not need (logging, "
        "checkpoints) every so many steps or in another thread",
        cpu.python, on=CPU,
    ),
    Rule(
        "short-ops", "Ops too short for what a call costs",
        "where no device worked, ops of under 20 us are 10 % of the time or more",
        "larger batches, torch.compile, foreach=True in the optimizer",
        cpu.short_ops, on=CPU,
    ),
    Rule(
        "long-ops", "Ops that more threads may make faster",
        "where no device worked, ops of 100 us or more are 50 % of the time or more",
        "compare torch.get_num_threads() with the cores (torch.set_num_threads, OMP_NUM_THREADS); "
        "bfloat16 (torch.autocast('cpu')) and channels_last where the processor has units for them",
        cpu.long_ops, on=CPU,
    ),
    Rule(
        "tensor-cores-unused", "Tensor Cores could have worked",
        "kernels that Tensor Cores could have replaced take 2 % of the kernels' time or more",
        "sizes in multiples of 8, TF32 (set_float32_matmul_precision('high')); for convolutions "
        "channels_last",
        device.tensor_cores_unused,
    ),
    Rule(
        "half-precision", "float32 where 16 bits are faster",
        "matrix products in f32 without TF32 take 10 % of the kernels' time or more, on a device "
        "whose 16-bit peak is higher",
        "torch.autocast, or bfloat16 weights",
        device.half_precision,
    ),
    Rule(
        "layout-and-casts", "Layouts and dtypes are converted",
        "such kernels take 3 % of the kernels' time or more",
        "one layout and dtype for the whole network: channels_last, autocast with fewer borders",
        device.layout_and_casts,
    ),
    Rule(
        "unfused-optimizer", "The optimizer runs a kernel per parameter",
        "100 or more kernels of the optimizer in a step, half of them below 10 us, none fused",
        "foreach=True or fused=True",
        device.unfused_optimizer,
    ),
    Rule(
        "elementwise-chains", "Elementwise kernels that could be one",
        "neighbours of one size on one stream in one layer, limited by the memory; moving what is "
        "between them takes 1 % of the time or more",
        "torch.compile, or fused ops",
        device.elementwise_chains,
    ),
    Rule(
        "small-grids", "Kernels too small for the device",
        "kernels of over 10 us with less than 0.5 blocks per multiprocessor, collectives left "
        "out, take 5 % of the kernels' time or more",
        "larger batches, several at once on streams, split reductions",
        device.small_grids,
    ),
    Rule(
        "straggler", "One rank is slow, and the others wait",
        "its time in kernels is over 3 spreads and 2 % above ranks of its role, and a replay in "
        "which it takes as long as they do gains 1 % of a step or more for certain",
        "see its device (clocks, temperature, what else runs there) and its share of the work; "
        "pyprof2 ranks --by blame names the calls",
        ranks.straggler,
    ),
    Rule(
        "host-pause", "The host of one rank is late, and the others wait",
        "idle time by its host is over 3 spreads and 2 % above ranks of its role, and a replay "
        "without that gains 1 % of a step or more for certain",
        "look at what this process alone does at the line: data, logging, checkpoints, garbage "
        "collection; and at what else its machine runs",
        ranks.host_pause,
    ),
    Rule(
        "slow-link", "The links of one group are slow",
        "the median transfer is over 3 spreads and 2 % above those of two or more other groups, "
        "and a replay with theirs gains 1 % or more for certain",
        "see which links and network cards the group uses (NCCL_DEBUG=INFO, nvidia-smi topo -m), "
        "and measure them alone with nccl-tests",
        ranks.slow_link,
    ),
    Rule(
        "load-imbalance", "Ranks have unequal work",
        "in half of the steps or more the longest of a role computes 5 % above its mean, and a "
        "replay with the work spread evenly gains 1 % or more for certain",
        "sort or pack batches by length, balance experts (auxiliary loss, capacity), split layers "
        "of a pipeline by time",
        ranks.load_imbalance,
    ),
    Rule(
        "exposed-communication", "Nothing runs beside communication",
        "only collectives run for 10 % of the time or more",
        "gradient buckets that start earlier, gradient accumulation, prefetching (FSDP), larger "
        "batches; first see whether one rank is late",
        job.exposed_communication,
    ),
    Rule(
        "copies", "Nothing runs beside copies",
        "only copies to or from the device run for 10 % of the time or more",
        "copy the next batch on a stream of its own while this one is worked on: pin_memory=True "
        "and non_blocking=True; fewer bytes, or keep them on the device",
        job.copies,
    ),
    Rule(
        "memory-limit", "Memory is nearly full", "over 90 % of a device's memory were allocated",
        "activation checkpointing, 16-bit types, smaller batches", job.memory_limit,
    ),
    Rule(
        "memory-growth", "Memory grows from step to step",
        "a line leaves 1 MiB or more in each step but the first and the last",
        "keep numbers and not tensors: loss.item() or loss.detach(), bounded caches",
        memory.memory_growth,
    ),
    Rule(
        "fragmentation", "The allocator holds what nothing fits into",
        "10 % or more of what was reserved at most was never allocated",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, the same shapes in every step",
        memory.fragmentation,
    ),
    Rule(
        "kept-for-backward", "Much is kept for backward",
        "over 80 % of a device's memory were allocated, and a layer keeps 5 % or more of what "
        "forward leaves for backward",
        "torch.utils.checkpoint of the layers that pyprof2 memory names, 16-bit types",
        memory.kept_for_backward,
    ),
    Rule(
        "server-idle", "Decoding waits for the host",
        "no work of decode steps ran in 10 % of the time of them, or between them",
        "CUDA graphs (no --enforce-eager), a scheduler that prepares the next batch meanwhile, "
        "sampling on the device, more requests at a time",
        server.decode_waits,
    ),
    Rule(
        "small-batch", "Few tokens for all weights in decoding",
        "decode steps have fewer tokens than the ridge of the device for 16-bit weights, and "
        "products with weights take 30 % of their time",
        "more requests at a time (max_num_seqs, memory for keys and values), weights of fewer "
        "bits, drafts",
        server.small_decode,
    ),
    Rule(
        "small-chunks", "Few tokens for all weights in prefill",
        "the same of two prefill steps or more",
        "larger chunks: max_num_batched_tokens, chunked_prefill_size", server.small_chunks,
    ),
    Rule(
        "padding", "Work for requests that are not there",
        "5 % of the work of steps is padding to what a graph was captured for",
        "capture graphs for more sizes (cudagraph_capture_sizes, cuda_graph_bs)",
        server.padding,
    ),
    Rule(
        "sampling-outside", "Sampling is outside of the graph",
        "1 % of decode steps passes between the end of a graph and the end of the step",
        "capture sampling too, or run it beside the next step", server.sampling_outside,
    ),
    Rule(
        "data-parallel", "DataParallel", "DataParallel runs on several devices",
        "DistributedDataParallel, a process per device", job.data_parallel,
    ),
    Rule(
        "backend", "DistributedDataParallel without NCCL",
        "its collectives are Gloo's or MPI's, on devices that NCCL supports (3.5 and later)",
        "init_process_group('nccl')", job.backend_without_nccl,
    ),
    Rule(
        "low-utilization", "Kernels run in less than half of the time",
        "kernels run in less than 50 % of the time, and a rule on the host fires",
        "see the findings on the host; larger batches", job.low_utilization,
    ),
    Rule(
        "slow-launches", "Launches of over 1 ms", "any, but in a full queue", _WARM_UP,
        recording.slow_launches, pollutes=True,
    ),
    Rule(
        "module-loading", "Code was loaded", "1 ms or more together", _WARM_UP,
        recording.module_loading, pollutes=True,
    ),
    Rule(
        "slow-first-step", "A slow first step", "it took over 1.5 times the median, of 3 or more",
        _WARM_UP, recording.slow_first_step, pollutes=True, on=BOTH,
    ),
    Rule(
        "unrecorded-start", "Work at the start is missing",
        "over 1 ms of idle time without known cause before the tenth piece of work",
        "torch.cuda.synchronize() before the recording starts", recording.unrecorded_start,
        pollutes=True,
    ),
    Rule(
        "clocks-differ", "The clocks of host and device differ",
        "GPU work begins over 10 us before its launch, three times and 0.1 % of the times or more",
        "record again; other versions of driver and profiler may align them better",
        recording.clocks_differ, pollutes=True,
    ),
    Rule(
        "kernel-drift", "Equal kernels take unequal times",
        "of kernels of over 20 us with 4 calls or more, a tenth vary by a factor of over 1.3",
        "lock the clocks (nvidia-smi -lgc), and let nothing else use the device",
        recording.kernel_drift, pollutes=True,
    ),
    Rule(
        "python-stacks", "Python stacks were recorded", "any",
        "record without them to time the host; with them to name lines", recording.python_stacks,
        pollutes=True, on=BOTH,
    ),
)  # fmt: skip
"""All of them."""

ON_THE_HOST: Final = (
    "data-loading", "host-bound", "allocator", "sync", "pageable-copies", "recompilation",
    "autotuning", "garbage-collection",
)  # fmt: skip
"""Those that make sense of low utilization."""

CONTEXT: Final = ("low-utilization",)
"""Those that are reported only beside one of these."""

NOISE: Final = (
    (
        "The share of kernels below 10 us",
        "nearly everywhere 29 to 88 % of them are that short, and take 0.6 to 5 % of the time",
    ),
    (
        "GPU utilization alone",
        "it has no cause, so no remedy: it is shown beside rules on the host",
    ),
    ("Occupancy alone", "fast matrix kernels have a low one; only empty multiprocessors count"),
    ("Tail waves", "how much a block does is not recorded, so the last wave cannot be judged"),
    (
        "How long the host was blocked",
        "359 ms blocked in one real recording cost 0.9 ms of idle time: the host was ahead",
    ),
)
"""Facts that are not reported, and why."""
