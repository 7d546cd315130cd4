"""The tables of what was found: totals, ledger, utilization, steps, lines; findings of `check`.

Those in `RESULTS` are made of the canonical tables of one rank and stored beside them, so that a
profile of a store reads no more than it shows. Findings are not stored: what to advise changes
with each version.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pyprof2.tables import KERNELS, TEXT, Column, Table

_RANK = Column("rank", pa.int64(), "Process in the job.", nullable=False)


def _count(name: str, meaning: str) -> Column:
    return Column(name, pa.int64(), meaning, nullable=False)


def _time(name: str, meaning: str) -> Column:
    return Column(name, pa.int64(), meaning, "ns", nullable=False)


SUMMARY: Final = Table(
    "summary",
    "One row per rank: its totals, from which the summary of all ranks is made.",
    (
        _RANK,
        Column("profiler", TEXT, "`kineto` or `nsight`."),
        Column(
            "devices",
            pa.list_(pa.string()),
            "Names of the devices that worked; where none is named, of those listed.",
            nullable=False,
        ),
        _count("kernel_count", "Kernels."),
        _count("copy_count", "Memcpys and memsets."),
        _time("kernel_time_ns", "Sum of the kernels' durations."),
        _time("copy_time_ns", "Sum of the copies' durations."),
        _count("gpu_count", "Devices that worked."),
        _time("busy_ns", "Time in which a device worked, added up over devices."),
        _time("busy_kernels_ns", "Time in which a device ran a kernel, added up over devices."),
        _time("span_ns", "From first to last GPU work, without a GPU from first to last op."),
        _count("op_count", "Op calls."),
        _time("op_time_ns", "Sum of the ops' self times."),
        _count("launched_count", "Kernels with a launch."),
        _count("linked_count", "Kernels with an op."),
        _count("other_threads_count", "Kernels without op, launched on threads without any op."),
        _time("linked_ns", "Time of the kernels with an op."),
        _count("backward_count", "Kernels in backward."),
        _count("backward_paired_count", "Of those, the ones with a forward op."),
        _count("recompute_count", "Kernels of ops that checkpointing runs again."),
        _count("graph_count", "Kernels of replayed graphs that nothing explains."),
        _count(
            "fused_count",
            "Kernels of compiled code without an op of their own: several, or an unknown one.",
        ),
        _count("graph_id_count", "Kernels of replayed graphs, found by the ids of nodes."),
        _time("graph_id_ns", "Their time."),
        _count("graph_names_count", "Those found by names and order."),
        _time("graph_names_ns", "Their time."),
        _count("graph_order_count", "Those found by order alone."),
        _time("graph_order_ns", "Their time."),
        _count("shapes_count", "Kernels whose op has a recorded shape; those of graphs left out."),
        _count("shapeless_count", "Kernels whose op has none; those of graphs left out."),
        _count("ops_with_shapes_count", "Ops with recorded inputs."),
        _count("ops_with_sequence_count", "Ops with a sequence number."),
        _count("ops_with_layer_count", "Ops with a layer."),
        _count("ops_with_source_count", "Ops with a line of the user's own."),
        _count("layer_count", "Kernels with a layer."),
        _count("source_count", "Kernels with a line of the user's own."),
        _time("costed_ns", "Time of the kernels whose FLOPs are known."),
        _time("op_row_time_ns", "Self time of the ops that are no envelopes of autograd's."),
        _time("costed_op_ns", "Of that, the time of ops whose FLOPs are known."),
    ),
)
LEDGER: Final = Table(
    "ledger",
    "One row per bin: GPU time, without a GPU op time, by what is known of the work.",
    (
        _RANK,
        Column("bin", TEXT, "What is known of the work, see below.", nullable=False),
        _time("time_ns", "Time in the bin."),
        Column("share_pct", pa.float64(), "Share of the time in all bins.", "%"),
        _count("count", "Kernels or copies; without a GPU op calls."),
    ),
)
UTILIZATION: Final = Table(
    "utilization",
    "One row per step: how much of what the device can do the model used.",
    (
        _RANK,
        Column("step", pa.int64(), "Number of the step; null: the whole, where there are none."),
        Column("wall_ns", pa.int64(), "Time of the step's windows.", "ns"),
        Column("busy_ns", pa.int64(), "Of it the time in which devices worked.", "ns"),
        Column("gpu_ns", pa.int64(), "Summed time of the work launched in it.", "ns"),
        Column("model_flops", pa.int64(), "FLOPs of the model's matrix work.", "FLOP"),
        Column("hardware_flops", pa.int64(), "FLOPs of all matrix work.", "FLOP"),
        Column("counted_pct", pa.float64(), "Share of matrix work whose FLOPs are known.", "%"),
        Column("peak_flop_per_s", pa.float64(), "Peak of all devices that worked.", "FLOP/s"),
        Column("peak", pa.string(), "What it is the peak of."),
        Column("mfu_pct", pa.float64(), "Model FLOPs over what the peak allows.", "%"),
        Column("hfu_pct", pa.float64(), "Hardware FLOPs over what the peak allows.", "%"),
    ),
)
STEPS: Final = Table(
    "steps",
    "One row per device and window of a step: from its start on the host, or the end of the window "
    "before it, to the end of the work that it launched. The times of the six states add up to it.",
    (
        _RANK,
        Column("device", pa.int64(), "Ordinal of the device; null without any."),
        Column(
            "step",
            pa.int64(),
            "Number of the step; it may come again in another recording.",
            nullable=False,
        ),
        _time("host_start_ns", "Start on the host."),
        _time("host_dur_ns", "Duration on the host."),
        _time("start_ns", "Start of the window."),
        _time("dur_ns", "Length of the window."),
        Column("compute_only_ns", pa.int64(), "Kernels run, none of them communicates.", "ns"),
        Column("comm_only_ns", pa.int64(), "Only communication runs: it is exposed.", "ns"),
        Column("comp_comm_overlap_ns", pa.int64(), "Both run, and no copy.", "ns"),
        Column("copy_only_ns", pa.int64(), "Only memcpys and memsets run.", "ns"),
        Column("copy_overlap_ns", pa.int64(), "A copy runs beside a kernel of any kind.", "ns"),
        Column("idle_ns", pa.int64(), "Nothing runs.", "ns"),
        Column("busy_kernels_ns", pa.int64(), "A kernel runs, whatever its kind.", "ns"),
        Column("gpu_utilization_pct", pa.float64(), "`busy_kernels_ns` over the window.", "%"),
        Column(
            "sm_efficiency_pct",
            pa.float64(),
            "Mean share of the multiprocessors that have a block: the sum of `blocks_per_sm` of "
            "the kernels that run, at most 1; null where that of one is unknown.",
            "%",
        ),
        Column(
            "occupancy_pct",
            pa.float64(),
            "Mean occupancy of the kernels, weighted with their time in the window; null where "
            "that of one is unknown.",
            "%",
        ),
    ),
)
LINES: Final = Table(
    "lines",
    "One row per step, line of code with the lines that led to it, call at that line and phase, in "
    "each of two ledgers. Times of one ledger add up: of `device` to those of the step's kernels "
    "and copies, of `host` to the step on the host; the ledgers are never added.",
    (
        _RANK,
        Column(
            "ledger",
            TEXT,
            "`device`; `host`, the thread of the step; or `threads`, the others, and what is "
            "outside of steps.",
        ),
        Column("step", pa.int64(), "Number of the step; null: outside, or there are none."),
        Column(
            "step_start_ns",
            pa.int64(),
            "Start of the step on the host, as `steps.host_start_ns`; without steps that of the "
            "recording.",
            "ns",
        ),
        Column("pid", pa.int64(), "Process of the thread; null on the device."),
        Column("tid", pa.int64(), "Host thread; null on the device."),
        Column(
            "stack_id",
            pa.int64(),
            "Joins to `stacks.stack_id` in its rank: the line, with those that called it. In "
            "backward that of the forward op.",
        ),
        Column("source", TEXT, "`path:line` of idle time that no op has a part in."),
        Column("layer", TEXT, "Dotted attribute path of the innermost module."),
        Column(
            "op",
            TEXT,
            "The op that the line called; in backward the one whose gradient is computed. Null: "
            "no op, on the host the time between ops.",
        ),
        Column(
            "phase",
            TEXT,
            "`forward`, `recompute` (a forward op that runs again inside backward), `backward`, "
            "`optimizer` or `other`; null without op.",
        ),
        _count("calls", "Ops that the line called itself, not inside another op."),
        _count("count", "Kernels and copies; on the host ops."),
        _time("time_ns", "Their time; of ops the time in which each was the innermost one."),
        Column("flops", pa.int64(), "FLOPs that are known; null: of none.", "FLOP"),
        Column("bytes", pa.int64(), "Bytes that are known; null: of none.", "B"),
        _time("costed_ns", "Of the time that of which FLOPs are known."),
        Column("tensor_core_ns", pa.int64(), "Of the time that on Tensor Cores.", "ns"),
        Column("tensor_core_known_ns", pa.int64(), "That with a verdict, yes or no.", "ns"),
        Column(
            "overlap_ns",
            pa.int64(),
            "Of the time that beside work of the device which began earlier: the time less it is "
            "the time in which the device was busy.",
            "ns",
        ),
        Column(
            "idle_caused_ns",
            pa.int64(),
            "Idle time of devices while the host was here; no part of the time.",
            "ns",
        ),
    ),
)
SUMS: Final = Table(
    "sums",
    "One row per distinct combination of what a profile is summed along: what the kernels and "
    "copies of it add up to, so that any set of rows adds up to what a profile of them shows. No "
    "rows where nothing ran on a device, and where there would be too many of them.",
    (
        _RANK,
        Column("direction", TEXT, "As `direction` of `kernels`; so are those below."),
        Column("layer", TEXT, "Dotted attribute path of the innermost module."),
        Column("op", TEXT, "Innermost PyTorch op."),
        Column("signature", TEXT, "The op with shapes and dtypes."),
        Column("kernel", TEXT, "Demangled name."),
        Column("category", TEXT, "What kind of work it is."),
        Column("source", TEXT, "`path:line` of the user's own."),
        Column("library", TEXT, "The library of the innermost line; `(own)`: the user's code."),
        Column("range", TEXT, "The user's own ranges around the launch."),
        Column("stream", pa.int64(), "Stream."),
        Column("copy_kind", TEXT, "From where to where a copy goes."),
        Column("tensor_core_missed", TEXT, "Why Tensor Cores were not used that could have been."),
        Column("roofline_flag", TEXT, "Why a rate above its roof may be right."),
        Column(
            "helped_rows",
            pa.list_(pa.int64()),
            "Of kernels that only help with the work of others: the rows of this rank, counted "
            "from 0, that have this work. Their time counts for rates only beside one of these.",
        ),
        _count("count", "Kernels and copies."),
        _time("time_ns", "Their time."),
        _time("min_ns", "The shortest."),
        _time("max_ns", "The longest."),
        _time("step_ns", "Of the time that launched in a step."),
        Column("flops", pa.int64(), "FLOPs that are known; what stands at another op is not in it.",
               "FLOP", nullable=False),
        _count("flops_count", "Of how many these are."),
        _count("known_flops_count", "Of how many any FLOPs are known, those at another op too."),
        _time("flops_ns", "Time of those that `flops` is of."),
        Column("bytes", pa.int64(), "Bytes that are known, as `flops`.", "B", nullable=False),
        _count("bytes_count", "Of how many these are."),
        _time("bytes_ns", "Time of those that `bytes` is of."),
        Column("both_flops", pa.int64(), "FLOPs of those whose bytes are known too.", "FLOP",
               nullable=False),
        Column("both_bytes", pa.int64(), "Bytes of these.", "B", nullable=False),
        Column("least_fs", pa.int64(), "Time that the roof allows, where it is known.", "fs",
               nullable=False),
        Column("least_ys", pa.int64(), "What `least_fs` is short of by rounding.", "ys",
               nullable=False),
        _time("least_ns", "Time taken by these."),
        _time("tensor_core_ns", "Time on Tensor Cores."),
        _time("tensor_core_known_ns", "Time with a verdict, yes or no."),
        _time("tensor_core_used_ns", "Time on Tensor Cores of work that they can do."),
        _count("tensor_core_used_count", "Of how many kernels this is."),
        _time("costed_ns", "Time whose counts are known."),
    ),
)  # fmt: skip
SUM_CALLS: Final = Table(
    "sum_calls",
    "One row per distinct set of rows of `sums` that op calls have kernels in: an op call that has "
    "some in several rows counts once in their sum.",
    (
        _RANK,
        Column("rows", pa.list_(pa.int64()), "Rows of `sums` of this rank, counted from 0.",
               nullable=False),
        _count("op_calls", "Op calls with kernels or copies in just these."),
    ),
)  # fmt: skip
_OF_AXES: Final = (
    "step", "stack_id", "grid", "block", "registers", "shared_bytes", "tensor_core",
)  # fmt: skip
AXIS_SUMS: Final = Table(
    "axis_sums",
    "What the kernels and copies add up to along axes that `sums` leaves out, as it says: one row "
    "per distinct combination of the columns of an axis. No rows of an axis where there would be "
    "too many.",
    (
        _RANK,
        Column("axis", TEXT, "`step`, or `launch`: the other ones of `kernels`.", nullable=False),
        *(column for column in KERNELS.columns if column.name in _OF_AXES),
        Column("span", pa.int64(), "Which of the recordings of the rank they are in."),
        *SUMS.columns[SUMS.names.index("tensor_core_missed") :],
        _count("kernel_count", "Kernels alone."),
        _count("known_kernel_count", "Of how many kernels any FLOPs are known."),
    ),
)
AXIS_SUM_CALLS: Final = Table(
    "axis_sum_calls",
    "One row per distinct set of rows of an axis in `axis_sums` that op calls have kernels in.",
    (
        _RANK,
        AXIS_SUMS.columns[1],
        Column("rows", pa.list_(pa.int64()), "Rows of this rank and axis, counted from 0.",
               nullable=False),
        SUM_CALLS.columns[-1],
    ),
)  # fmt: skip
IDLE_SUMS: Final = Table(
    "idle_sums",
    "One row per cause and line of idle time, in steps and outside: table `idle` added up.",
    (
        _RANK,
        Column("cause", TEXT, "As `cause` of `idle`."),
        Column("source", TEXT, "`path:line` of the user's own that it belongs to."),
        Column("in_step", pa.bool_(), "Whether it is in the window of a step.", nullable=False),
        _time("time_ns", "The idle time."),
    ),
)
DEVICE_USE: Final = Table(
    "device_use",
    "One row per device: how it was used from the start of the first step to the end of the last, "
    "time between them too; without steps from the first activity to the last. Of several "
    "recordings of a rank each counts by itself.",
    (
        _RANK,
        Column("device", pa.int64(), "Its ordinal."),
        _time("window_ns", "How long that is."),
        *(column for column in STEPS.columns if column.name.endswith("_pct")),
    ),
)
_OF_KINDS: Final = {"c": "in context", "g": "in generation"}
_SUMS: Final = {
    "req": "Requests {}.",
    "sq": "Their new tokens.",
    "sk": "The keys that these attend to, the new ones included.",
    "sqsq": "The sum of the squares of each request's new tokens.",
    "sqsk": "The sum of each request's new tokens times its keys.",
}
SERVING_STEPS: Final = Table(
    "serving_steps",
    "One row per step of an inference server, one pass of a batch through the model on a rank, "
    "and one per rank for work that no step launched. Not stored: it is found in the names "
    "of ranges. Work belongs to the step whose range its launch began in.",
    (
        _RANK,
        Column("serving_step", pa.int64(), "Number in the rank; null outside of steps."),
        Column("dialect", TEXT, "The server's form of the name."),
        Column(
            "phase",
            TEXT,
            "`prefill`, `extend` (a prompt that has keys in the cache), `mixed`, `decode`, "
            "`verify` (drafts), `draft`, `diffusion`, `idle`; "
            "`outside`: no step launched it; null: the name does not say.",
        ),
        Column("requests", pa.int64(), "Requests in the batch."),
        *(
            Column(f"{kind}_{name}", pa.int64(), meaning.format(words))
            for kind, words in _OF_KINDS.items()
            for name, meaning in _SUMS.items()
        ),
        Column("padded", pa.int64(), "Requests or tokens that the batch was padded to."),
        Column("contradiction", TEXT, "Why the sums of the name are not taken; null: they are."),
        Column("host_start_ns", pa.int64(), "Start of the range on the host.", "ns"),
        Column(
            "host_ns",
            pa.int64(),
            "Its duration, which is not that of the step: the host may wait in it for the step "
            "before.",
            "ns",
        ),
        Column("wait_ns", pa.int64(), "Of it in calls that wait for the device.", "ns"),
        Column("start_ns", pa.int64(), "Start of the first work that the step launched.", "ns"),
        Column("span_ns", pa.int64(), "From there to the end of the last.", "ns"),
        Column("busy_ns", pa.int64(), "Of it with work of the step on a device.", "ns"),
        Column("gap_ns", pa.int64(), "Of it without.", "ns"),
        Column(
            "period_ns",
            pa.int64(),
            "From `start_ns` to that of the next step; null of the last one.",
            "ns",
        ),
        Column(
            "device_ns",
            pa.int64(),
            "The time of its work; where activities of a device overlap, that of the one that "
            "began first, so the rows of a device add up to its busy time.",
            "ns",
        ),
        Column("out_least", pa.int64(), "Tokens of the output, at least."),
        Column("out_most", pa.int64(), "Tokens of the output, at most."),
        Column("launched", pa.int64(), "Activities that were launched one by one."),
        Column("launched_by_graph", pa.int64(), "Activities that a graph's launch launched."),
        Column(
            "by_device_range",
            pa.int64(),
            "Activities in the range of the step on their stream; only where nothing says what "
            "launched them.",
        ),
        Column("launched_elsewhere", pa.int64(), "Of all these by another thread of the process."),
    ),
)
SERVING_PHASES: Final = Table(
    "serving_phases",
    "One row per phase of an inference server's steps, and one for work that no step launched. The "
    "times of devices add up to all of their busy time. Not stored: `pyprof2 prof --by phase`.",
    (
        Column("phase", TEXT, "As in `serving_steps`."),
        _count("steps", "Steps in this phase."),
        Column("requests", pa.float64(), "Requests of a step, on average."),
        Column("new_tokens", pa.int64(), "Tokens that went in; null: not known of each step."),
        Column("out_least", pa.int64(), "Tokens of the output, at least."),
        Column("out_most", pa.int64(), "Tokens of the output, at most."),
        _time("device_ns", "Time of devices; of those that overlap, of the one that began first."),
        Column("share_pct", pa.float64(), "Share of all of it.", "%"),
        Column("span_ns", pa.int64(), "From first to last work of each step, summed up.", "ns"),
        Column("gap_ns", pa.int64(), "Of it without work of the step.", "ns"),
        Column("host_ns", pa.int64(), "Ranges of the host, summed up.", "ns"),
        Column("wait_ns", pa.int64(), "Of them in calls that wait for the device.", "ns"),
        Column(
            "pace_ns",
            pa.int64(),
            "Time for throughput, summed up: of a step from its first work to that of the next, of "
            "the last one its span.",
            "ns",
        ),
        Column("in_per_s", pa.float64(), "`new_tokens` over `pace_ns`.", "1/s"),
        Column("out_per_s", pa.float64(), "`out_least` over `pace_ns`.", "1/s"),
        *(
            Column(f"{end}_price", pa.float64(), f"Price of a million tokens {words}; --price.")
            for end, words in (("in", "of a prompt"), ("out", "of the output"))
        ),
        *(
            Column(
                f"{name}_{end}", pa.float64(), f"{meaning} of one rank, at {end}; --model.", unit
            )
            for name, meaning, unit in (
                ("flops", "FLOPs of products with weights and of attention", ""),
                ("bytes", "Bytes of weights, keys and values", "B"),
                ("math_ns", "How long the FLOPs take at the device's peaks for their types", "ns"),
            )
            for end in ("least", "most")
        ),
        *(
            Column(f"{name}_{end}_pct", pa.float64(), f"{meaning}, at {end}; --model.", "%")
            for name, meaning in (
                ("mfu", "`math_ns` over `pace_ns`"),
                ("mbu", "Bytes over `pace_ns` and the bandwidth of its memory"),
            )
            for end in ("least", "most")
        ),
    ),
)
SERVING_KINDS: Final = Table(
    "serving_kinds",
    "One row per phase and kind of layer of an inference server's steps. The times of devices add "
    "up to all of their busy time. Not stored: `pyprof2 prof --by phase,kind`; `--by kind` sums "
    "over phases.",
    (
        Column("phase", TEXT, "As in `serving_steps`."),
        Column(
            "kind",
            TEXT,
            "`qkv`, `o`, `gate_up`, `down`, `experts`, `router`, `lm_head`: products with weights; "
            "`linear`: such that nothing tells apart; `attention`, `kv_write`, `rope`, `norm`, "
            "`activation`, `sampling`, `communication`, `copy`, `other`.",
        ),
        _count("count", "Kernels and copies."),
        _time("device_ns", "Time of devices; of those that overlap, of the one that began first."),
        Column("share_pct", pa.float64(), "Share of all of it.", "%"),
        *(
            Column(f"{name}_{end}", pa.float64(), f"{meaning} of one rank, at {end}.", unit)
            for name, meaning, unit in (
                ("flops", "FLOPs", ""),
                ("bytes", "Bytes", "B"),
                ("tflops", "FLOPs over `device_ns`", "TFLOP/s"),
                ("gbps", "Bytes over `device_ns`", "GB/s"),
            )
            for end in ("least", "most")
        ),
        Column("costed_pct", pa.float64(), "Share of `device_ns` whose work is known.", "%"),
        Column(
            "cost_from",
            TEXT,
            "`model`: the configuration and the sums of the batches; `shapes`: those of the ops; "
            "null: not known of all.",
        ),
    ),
)
SERVING_DIFFERENCE: Final = Table(
    "serving_difference",
    "One row per phase, or phase and kind of layer, of two runs of an inference server. Not "
    "stored: `pyprof2 compare A B --by phase,kind`.",
    (
        Column("phase", TEXT, "As in `serving_steps`."),
        Column("kind", TEXT, "As in `serving_kinds`."),
        *(
            column
            for side in "ab"
            for column in (
                Column(f"{side}_device_ns", pa.int64(), f"Time of devices in {side}.", "ns"),
                Column(f"{side}_ns_per_token", pa.float64(), "The same, for one new token.", "ns"),
            )
        ),
        Column("change_ns_per_token", pa.float64(), "What it takes longer in b.", "ns"),
        Column("change_pct", pa.float64(), "The same, of a.", "%"),
    ),
)
ENERGY: Final = Table(
    "energy",
    "One row per counter of energy that the recording machine let the recorder read. Not stored: "
    "it is found in the ranges of kind `energy`.",
    (
        _RANK,
        Column(
            "counter",
            pa.string(),
            "Where it is from, `rapl`, `nvml` or `nvml-power`, and whose.",
            nullable=False,
        ),
        Column("joules_per_step", pa.float64(), "Energy of a step; null: see `note`.", "J"),
        Column("lo", pa.float64(), "The least that it may be.", "J"),
        Column("hi", pa.float64(), "The most that it may be.", "J"),
        Column(
            "idle_joules",
            pa.float64(),
            "What the machine used before the program began, in the time of a step; null: nobody "
            "asked, see `PYPROF2_ENERGY_IDLE`. Part of `joules_per_step`, and not taken off.",
            "J",
        ),
        Column("idle_lo", pa.float64(), "The least that this may be.", "J"),
        Column("idle_hi", pa.float64(), "The most that this may be.", "J"),
        Column("joules", pa.float64(), "Between the first reading and the last.", "J"),
        Column("seconds", pa.float64(), "The time between them.", "s"),
        _count("steps", "Steps that begin between them."),
        Column("method", pa.string(), "What was read.", nullable=False),
        Column("note", pa.string(), "Why there is no energy of a step."),
    ),
)
SPENDING: Final = Table(
    "spending",
    "One row per recording and measure of `pyprof2 energy`. Not stored.",
    (
        Column("recording", pa.string(), "Its name, as it was given.", nullable=False),
        Column("measure", pa.string(), "`time`, `energy`, `idle_energy`, `carbon` or `price`.",
               nullable=False),
        Column("rank", pa.int64(), "Of the job; null: of all of it."),
        Column("counter", pa.string(), "Of energy: where it is from, as in `energy`."),
        Column("value", pa.float64(), "Of a step, or of as many as were asked for."),
        Column("lo", pa.float64(), "The least that it may be."),
        Column("hi", pa.float64(), "The most that it may be."),
        Column("unit", pa.string(), "`s`, `J`, `g` of CO2, or `price`: what it was given in.",
               nullable=False),
        Column("note", pa.string(), "What it rests on, or why there is no value."),
    ),
)  # fmt: skip
CLOCKS: Final = Table(
    "clocks",
    "One row per rank: how its clock differs from that of a reference rank, by the collectives "
    "that both were in.",
    (
        _RANK,
        Column("reference", pa.int64(), "The rank whose clock it is compared with; its own: none."),
        Column(
            "offset_ns", pa.int64(), "Own time less that of the reference, at the middle.", "ns"
        ),
        Column("drift_ppb", pa.float64(), "How much faster the own clock runs.", "ppb"),
        Column("residual_ns", pa.int64(), "Spread of the differences around the estimate.", "ns"),
        Column(
            "class_spread_ns",
            pa.int64(),
            "How far the medians by kind, size and group are apart, halved: bias of the estimate.",
            "ns",
        ),
        Column(
            "lo_ns",
            pa.int64(),
            "The offset is at least this: no member ends before another one starts.",
            "ns",
        ),
        Column("hi_ns", pa.int64(), "And at most this.", "ns"),
        Column("error_ns", pa.int64(), "Error of the offset: less is as good as 0.", "ns"),
        _count("collectives", "Instances that both ranks were in and that synchronise."),
        Column("component", pa.int64(), "Equal for ranks whose times can be compared."),
        Column(
            "middle_ns",
            pa.int64(),
            "Where the offset holds, on the clock of the reference.",
            "ns",
        ),
        Column("applied", pa.bool_(), "Whether starts are moved by it.", nullable=False),
        Column("reason", TEXT, "Why, or why not."),
    ),
)
_MANY: Final = "Only of jobs of many ranks; of others it is found when it is asked for."
PARTS: Final = Table(
    "parts",
    f"One row per device and step: what it did, in parts that add up to the window. {_MANY}",
    (
        _RANK,
        Column("device", pa.int64(), "Ordinal of the device; null without any."),
        Column("step", pa.int64(), "Number of the step; null: the whole recording has none."),
        _time("start_ns", "Start of the window, on the rank's own clock."),
        _time("window_ns", "Length of the window."),
        _time("busy_ns", "Anything runs."),
        _time("compute_only_ns", "Kernels run, none of them communicates, and no copy."),
        _time("comm_only_ns", "Only communication runs: it is exposed."),
        _time("copy_only_ns", "Only memcpys and memsets run."),
        _time("comp_comm_ns", "Kernels of both kinds run at once."),
        _time("copy_overlap_ns", "What else a copy runs beside."),
        _time("idle_ns", "Nothing runs."),
        _time("compute_ns", "Kernels run that do not communicate."),
        _time("comm_ns", "Kernels run that communicate."),
        Column("overlap_pct", pa.float64(), "`comp_comm_ns` over `comm_ns`.", "%"),
        Column("exposed_wait_ns", pa.int64(), "Of `comm_only_ns`: waiting for ranks.", "ns"),
        Column("exposed_transfer_ns", pa.int64(), "Of it: transfers.", "ns"),
        Column("exposed_unmatched_ns", pa.int64(), "Of it: what is not matched.", "ns"),
        _time("host_ns", "Idle time for which the host is to blame."),
    ),
)
SEGMENTS: Final = Table(
    "segments",
    "One row per pair of collectives of a rank between which a path runs: how long it takes at "
    f"least from the end of one to the start of the other. {_MANY}",
    (
        _RANK,
        Column(
            "source_id",
            pa.int64(),
            "Joins to `collectives.collective_id`; -1: the beginning of the recording.",
            nullable=False,
        ),
        Column(
            "target_id",
            pa.int64(),
            "Joins to `collectives.collective_id`; -1: the end of the step.",
            nullable=False,
        ),
        Column("step", pa.int64(), "Of an end: the step; null: of what is in none."),
        _time("begin_ns", "Beginning of the rank's recording, on its own clock."),
        Column("ns", pa.int64(), "As recorded.", "ns"),
        Column("unwaited_ns", pa.int64(), "Without waits of streams that are inferred.", "ns"),
        Column("unlagged_ns", pa.int64(), "Without any gap.", "ns"),
    ),
)
FINDINGS: Final = Table(
    "findings",
    "One row per finding of `pyprof2 check`, problems first.",
    (
        Column("severity", TEXT, "`problem`, `lack` or `info`.", nullable=False),
        Column("finding", pa.string(), "What was found.", nullable=False),
        Column("count", pa.int64(), "How often."),
        Column("share_pct", pa.float64(), "Share of what the finding is about.", "%"),
        Column("advice", pa.string(), "What to do about it."),
        Column("rank", pa.int64(), "Process in the job; null: all of them."),
    ),
)
ADVICE: Final = Table(
    "advice",
    "One row per rank and rule that holds for it: first those that fire, the largest gain first.",
    (
        Column("rank", pa.int64(), "Process in the job.", nullable=False),
        Column("rule", TEXT, "Its name, as on the page on advice.", nullable=False),
        Column(
            "severity",
            TEXT,
            "`high`: 10 % of the recorded time or more is expected to be gained (at stake, "
            "where that is not known), `medium`: 3 % or more, `low`; `info`: no time that can be "
            "named; null where the rule is silent.",
        ),
        Column(
            "status",
            TEXT,
            "`fires`, `silent`, or `unknown`: what decides was not recorded, see `needs`.",
            nullable=False,
        ),
        Column("finding", TEXT, "What was found, in words; null where the rule is silent."),
        Column("at_stake_lo_ns", pa.int64(), "What the remedy gains at least.", "ns"),
        Column("at_stake_hi_ns", pa.int64(), "What it gains at most.", "ns"),
        Column(
            "expected_ns",
            pa.int64(),
            "What it gains if nothing else changes and, of a "
            "kernel, only if what comes next was launched in time.",
            "ns",
        ),
        Column("limit", TEXT, "What the most is the most of."),
        Column("evidence", TEXT, "Ids of rows, as `kernels:1,2,3 (+40)`; the first few."),
        Column("source", TEXT, "`path:line` that most of it belongs to."),
        Column("remedy", TEXT, "What to do."),
        Column("needs", TEXT, "What to record, where the verdict is `unknown`."),
    ),
)
"""Times of several findings overlap, so they must never be added up."""

RESULTS: Final = {
    table.name: table
    for table in (
        SUMMARY, LEDGER, UTILIZATION, STEPS, LINES, SUMS, SUM_CALLS, AXIS_SUMS,
        AXIS_SUM_CALLS, IDLE_SUMS, DEVICE_USE, CLOCKS, PARTS, SEGMENTS,
    )
}  # fmt: skip
"""The tables that a store has beside the canonical ones."""
