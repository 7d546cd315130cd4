"""The tables of what was found: totals, ledger, utilization, steps, lines; findings of `check`.

Those in `RESULTS` are made of the canonical tables of one rank and stored beside them, so that a
profile of a store reads no more than it shows. Findings are not stored: what to advise changes
with each version.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pyprof2.tables import KERNELS, Column, Table, real, text, whole

_RANK = whole("rank", "Process in the job.", nullable=False)


def _count(name: str, meaning: str) -> Column:
    return whole(name, meaning, nullable=False)


def _time(name: str, meaning: str) -> Column:
    return whole(name, meaning, "ns", nullable=False)


SUMMARY: Final = Table(
    "summary",
    "One row per rank: its totals, from which the summary of all ranks is made.",
    (
        _RANK,
        text("profiler", "`kineto` or `nsight`."),
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
        _count("range_count", "Ranges of the host that the user's code marks."),
        _count("frame_count", "Calls of Python functions and modules."),
        _count("gpu_call_count", "Calls that give a device work, whether it was recorded or not."),
        _count("listed_gpu_count", "Devices other than CPUs that the recording lists."),
        _time("op_time_ns", "Sum of the ops' self times."),
        _count("launched_count", "Kernels with a launch."),
        _count(
            "early_launch_count",
            "Kernels without a launch that run before all of their stream that have one: it was "
            "before the recording.",
        ),
        _count(
            "lost_launch_count",
            "Kernels without a launch that run behind one of their stream that has one: it is "
            "missing from the middle of the recording.",
        ),
        _count("unsure_count", "Kernels that several processes may have launched: without one."),
        _count("linked_count", "Kernels with an op."),
        _count("other_threads_count", "Kernels without op, launched on threads without any op."),
        _time("linked_ns", "Time of the kernels with an op."),
        _count("backward_count", "Kernels in backward."),
        _count("backward_paired_count", "Of those, the ones with a forward op."),
        _count("recompute_count", "Kernels of ops that checkpointing runs again."),
        _count("graph_count", "Kernels of replayed graphs that nothing explains."),
        _count(
            "fused_count",
            "Kernels of compiled code that do the work of several ops.",
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
        text("bin", "What is known of the work, see below.", nullable=False),
        _time("time_ns", "Time in the bin."),
        real("share_pct", "Share of the time in all bins.", "%"),
        _count("count", "Kernels or copies; without a GPU op calls."),
    ),
)
UTILIZATION: Final = Table(
    "utilization",
    "One row per step: how much of what the device can do the model used.",
    (
        _RANK,
        whole("step", "Number of the step; null: the whole, where there are none."),
        whole("wall_ns", "Time of the step's windows.", "ns"),
        whole("busy_ns", "Of it the time in which devices worked.", "ns"),
        whole("gpu_ns", "Summed time of the work launched in it.", "ns"),
        whole("model_flops", "FLOPs of the model's matrix work.", "FLOP"),
        whole("hardware_flops", "FLOPs of all matrix work.", "FLOP"),
        real("counted_pct", "Share of matrix work whose FLOPs are known.", "%"),
        real("peak_flop_per_s", "Peak of all devices that worked.", "FLOP/s"),
        Column("peak", pa.string(), "What it is the peak of."),
        real("mfu_pct", "Model FLOPs over what the peak allows.", "%"),
        real("hfu_pct", "Hardware FLOPs over what the peak allows.", "%"),
    ),
)
STEPS: Final = Table(
    "steps",
    "One row per device and window of a step: from its start on the host, or the end of the window "
    "before it, to the end of the work that it launched. The times of the six states add up to it.",
    (
        _RANK,
        whole("device", "Ordinal of the device; null without any."),
        whole(
            "step", "Number of the step; it may come again in another recording.", nullable=False
        ),
        whole(
            "epoch",
            "How often the recorded numbers of steps have begun again, after which they are "
            "numbered on; null: never.",
        ),
        _time("host_start_ns", "Start on the host."),
        _time("host_dur_ns", "Duration on the host."),
        _time("start_ns", "Start of the window."),
        _time("dur_ns", "Length of the window."),
        whole("compute_only_ns", "Kernels run, none of them communicates.", "ns"),
        whole("comm_only_ns", "Only communication runs: it is exposed.", "ns"),
        whole("comp_comm_overlap_ns", "Both run, and no copy.", "ns"),
        whole("copy_only_ns", "Only memcpys and memsets run.", "ns"),
        whole("copy_overlap_ns", "A copy runs beside a kernel of any kind.", "ns"),
        whole("idle_ns", "Nothing runs.", "ns"),
        whole("busy_kernels_ns", "A kernel runs, whatever its kind.", "ns"),
        real("gpu_utilization_pct", "`busy_kernels_ns` over the window.", "%"),
        real(
            "sm_efficiency_pct",
            "Mean share of the multiprocessors that have a block: the sum of `blocks_per_sm` of "
            "the kernels that run, at most 1; null where that of one is unknown.",
            "%",
        ),
        real(
            "occupancy_pct",
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
        text(
            "ledger",
            "`device`; `host`, the thread of the step; or `threads`, the others, and what is "
            "outside of steps.",
        ),
        whole("step", "Number of the step; null: outside, or there are none."),
        whole(
            "step_start_ns",
            "Start of the step on the host, as `steps.host_start_ns`; without steps that of the "
            "recording.",
            "ns",
        ),
        whole("pid", "Process of the thread; null on the device."),
        whole("tid", "Host thread; null on the device."),
        whole(
            "stack_id",
            "Joins to `stacks.stack_id` in its rank: the line, with those that called it. In "
            "backward that of the forward op.",
        ),
        text("source", "`path:line` of idle time that no op has a part in."),
        text("layer", "Dotted attribute path of the innermost module."),
        text(
            "op",
            "The op that the line called; in backward the one whose gradient is computed. Null: "
            "no op, on the host the time between ops.",
        ),
        text(
            "phase",
            "`forward`, `recompute` (a forward op that runs again inside backward), `backward`, "
            "`optimizer` or `other`; null without op.",
        ),
        _count("calls", "Ops that the line called itself, not inside another op."),
        _count("count", "Kernels and copies; on the host ops."),
        _time("time_ns", "Their time; of ops the time in which each was the innermost one."),
        whole("flops", "FLOPs that are known; null: of none.", "FLOP"),
        whole("bytes", "Bytes that are known; null: of none.", "B"),
        _time("costed_ns", "Of the time that of which FLOPs are known."),
        whole("tensor_core_ns", "Of the time that on Tensor Cores.", "ns"),
        whole("tensor_core_known_ns", "That with a verdict, yes or no.", "ns"),
        whole(
            "overlap_ns",
            "Of the time that beside work of the device which began earlier: the time less it is "
            "the time in which the device was busy.",
            "ns",
        ),
        whole(
            "idle_caused_ns",
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
        text("direction", "As `direction` of `kernels`; so are those below."),
        text("layer", "Dotted attribute path of the innermost module."),
        text("op", "Innermost PyTorch op."),
        text("signature", "The op with shapes and dtypes."),
        text("kernel", "Demangled name."),
        text("category", "What kind of work it is."),
        text("source", "`path:line` of the user's own."),
        text("library", "The library of the innermost line; `(own)`: the user's code."),
        text("range", "The user's own ranges around the launch."),
        whole("device", "Ordinal of the device."),
        whole("stream", "Queue in the device."),
        text("copy_kind", "From where to where a copy goes."),
        text("tensor_core_missed", "Why Tensor Cores were not used that could have been."),
        text("roofline_flag", "Why a rate above its roof may be right."),
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
        whole("flops", "FLOPs that are known; what stands at another op is not in it.",
               "FLOP", nullable=False),
        _count("flops_count", "Of how many these are."),
        _count("known_flops_count", "Of how many any FLOPs are known, those at another op too."),
        _time("flops_ns", "Time of those that `flops` is of."),
        whole("bytes", "Bytes that are known, as `flops`.", "B", nullable=False),
        _count("bytes_count", "Of how many these are."),
        _time("bytes_ns", "Time of those that `bytes` is of."),
        whole("both_flops", "FLOPs of those whose bytes are known too.", "FLOP",
               nullable=False),
        whole("both_bytes", "Bytes of these.", "B", nullable=False),
        whole("least_fs", "Time that the roof allows, where it is known.", "fs",
               nullable=False),
        whole("least_ys", "What `least_fs` is short of by rounding.", "ys",
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
        text("axis", "`step`, or `launch`: the other ones of `kernels`.", nullable=False),
        *(column for column in KERNELS.columns if column.name in _OF_AXES),
        whole("span", "Which of the recordings of the rank they are in."),
        *SUMS.columns[SUMS.names.index("tensor_core_missed") :],
        _count("kernel_count", "Kernels alone."),
        _count("known_kernel_count", "Of how many kernels any FLOPs are known."),
        _count("sized_kernel_count", "Of how many kernels the bytes are known."),
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
        text("cause", "As `cause` of `idle`."),
        text("source", "`path:line` of the user's own that it belongs to."),
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
        whole("device", "Its ordinal."),
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
        whole("serving_step", "Number in the rank; null outside of steps."),
        text("dialect", "The server's form of the name."),
        text(
            "phase",
            "`prefill`, `extend` (a prompt that has keys in the cache), `mixed`, `decode`, "
            "`verify` (drafts), `draft`, `diffusion`, `idle`; "
            "`outside`: no step launched it; null: the name does not say.",
        ),
        whole("requests", "Requests in the batch."),
        *(
            whole(f"{kind}_{name}", meaning.format(words))
            for kind, words in _OF_KINDS.items()
            for name, meaning in _SUMS.items()
        ),
        whole("padded", "Requests or tokens that the batch was padded to."),
        text("contradiction", "Why the sums of the name are not taken; null: they are."),
        whole("host_start_ns", "Start of the range on the host.", "ns"),
        whole(
            "host_ns",
            "Its duration, which is not that of the step: the host may wait in it for the step "
            "before.",
            "ns",
        ),
        whole("wait_ns", "Of it in calls that wait for the device.", "ns"),
        whole("start_ns", "Start of the first work that the step launched.", "ns"),
        whole("span_ns", "From there to the end of the last.", "ns"),
        whole("busy_ns", "Of it with work of the step on a device.", "ns"),
        whole("gap_ns", "Of it without.", "ns"),
        whole("period_ns", "From `start_ns` to that of the next step; null of the last one.", "ns"),
        whole(
            "device_ns",
            "The time of its work; where activities of a device overlap, that of the one that "
            "began first, so the rows of a device add up to its busy time.",
            "ns",
        ),
        whole("out_least", "Tokens of the output, at least."),
        whole("out_most", "Tokens of the output, at most."),
        whole("launched", "Activities that were launched one by one."),
        whole("launched_by_graph", "Activities that a graph's launch launched."),
        whole(
            "by_device_range",
            "Activities in the range of the step on their stream; only where nothing says what "
            "launched them.",
        ),
        whole("launched_elsewhere", "Of all these by another thread of the process."),
    ),
)
SERVING_PHASES: Final = Table(
    "serving_phases",
    "One row per phase of an inference server's steps, and one for work that no step launched. The "
    "times of devices add up to all of their busy time. Not stored: `pyprof2 prof --by phase`.",
    (
        text("phase", "As in `serving_steps`."),
        _count("steps", "Steps in this phase."),
        real("requests", "Requests of a step, on average."),
        whole("new_tokens", "Tokens that went in; null: not known of each step."),
        whole("out_least", "Tokens of the output, at least."),
        whole("out_most", "Tokens of the output, at most."),
        _time("device_ns", "Time of devices; of those that overlap, of the one that began first."),
        real("share_pct", "Share of all of it.", "%"),
        whole("span_ns", "From first to last work of each step, summed up.", "ns"),
        whole("gap_ns", "Of it without work of the step.", "ns"),
        whole("host_ns", "Ranges of the host, summed up.", "ns"),
        whole("wait_ns", "Of them in calls that wait for the device.", "ns"),
        whole(
            "pace_ns",
            "Time for throughput, summed up: of a step from its first work to that of the next, of "
            "the last one its span.",
            "ns",
        ),
        real("in_per_s", "`new_tokens` over `pace_ns`.", "1/s"),
        real("out_per_s", "`out_least` over `pace_ns`.", "1/s"),
        *(
            real(f"{end}_price", f"Price of a million tokens {words}; --price.")
            for end, words in (("in", "of a prompt"), ("out", "of the output"))
        ),
        *(
            real(f"{name}_{end}", f"{meaning} of one rank, at {end}; --model.", unit)
            for name, meaning, unit in (
                ("flops", "FLOPs of products with weights and of attention", ""),
                ("bytes", "Bytes of weights, keys and values", "B"),
                ("math_ns", "How long the FLOPs take at the device's peaks for their types", "ns"),
            )
            for end in ("least", "most")
        ),
        *(
            real(f"{name}_{end}_pct", f"{meaning}, at {end}; --model.", "%")
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
        text("phase", "As in `serving_steps`."),
        text(
            "kind",
            "`qkv`, `o`, `gate_up`, `down`, `experts`, `router`, `lm_head`: products with weights; "
            "`linear`: such that nothing tells apart; `attention`, `kv_write`, `rope`, `norm`, "
            "`activation`, `sampling`, `communication`, `copy`, `other`.",
        ),
        _count("count", "Kernels and copies."),
        _time("device_ns", "Time of devices; of those that overlap, of the one that began first."),
        real("share_pct", "Share of all of it.", "%"),
        *(
            real(f"{name}_{end}", f"{meaning} of one rank, at {end}.", unit)
            for name, meaning, unit in (
                ("flops", "FLOPs", ""),
                ("bytes", "Bytes", "B"),
                ("tflops", "FLOPs over `device_ns`", "TFLOP/s"),
                ("gbps", "Bytes over `device_ns`", "GB/s"),
            )
            for end in ("least", "most")
        ),
        real(
            "costed_pct",
            "Share of `device_ns` whose work is known: by the model, or exactly by shapes.",
            "%",
        ),
        text(
            "cost_from",
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
        text("phase", "As in `serving_steps`."),
        text("kind", "As in `serving_kinds`."),
        *(
            column
            for side in "ab"
            for column in (
                whole(f"{side}_device_ns", f"Time of devices in {side}.", "ns"),
                real(f"{side}_ns_per_token", "The same, for one new token.", "ns"),
            )
        ),
        real("change_ns_per_token", "What it takes longer in b.", "ns"),
        real("change_pct", "The same, of a.", "%"),
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
        real("joules_per_step", "Energy of a step; null: see `note`.", "J"),
        real("lo", "The least that it may be.", "J"),
        real("hi", "The most that it may be.", "J"),
        real(
            "idle_joules",
            "What the machine used before the program began, in the time of a step; null: nobody "
            "asked, see `PYPROF2_ENERGY_IDLE`. Part of `joules_per_step`, and not taken off.",
            "J",
        ),
        real("idle_lo", "The least that this may be.", "J"),
        real("idle_hi", "The most that this may be.", "J"),
        real("joules", "Between the first reading and the last.", "J"),
        real("seconds", "The time between them.", "s"),
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
        whole("rank", "Of the job; null: of all of it."),
        Column("counter", pa.string(), "Of energy: where it is from, as in `energy`."),
        real("value", "Of a step, or of as many as were asked for."),
        real("lo", "The least that it may be."),
        real("hi", "The most that it may be."),
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
        whole("reference", "The rank whose clock it is compared with; its own: none."),
        whole("offset_ns", "Own time less that of the reference, at the middle.", "ns"),
        real("drift_ppb", "How much faster the own clock runs.", "ppb"),
        whole("residual_ns", "Spread of the differences around the estimate.", "ns"),
        whole(
            "class_spread_ns",
            "How far the medians by kind, size and group are apart, halved: bias of the estimate.",
            "ns",
        ),
        whole(
            "lo_ns", "The offset is at least this: no member ends before another one starts.", "ns"
        ),
        whole("hi_ns", "And at most this.", "ns"),
        whole("error_ns", "Error of the offset: less is as good as 0.", "ns"),
        _count("collectives", "Instances that both ranks were in and that synchronise."),
        whole("component", "Equal for ranks whose times can be compared."),
        whole("middle_ns", "Where the offset holds, on the clock of the reference.", "ns"),
        Column("applied", pa.bool_(), "Whether starts are moved by it.", nullable=False),
        text("reason", "Why, or why not."),
    ),
)
_MANY: Final = "Only of jobs of many ranks; of others it is found when it is asked for."
PARTS: Final = Table(
    "parts",
    f"One row per device and step: what it did, in parts that add up to the window. {_MANY}",
    (
        _RANK,
        whole("device", "Ordinal of the device; null without any."),
        whole("step", "Number of the step; null: the whole recording has none."),
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
        real("overlap_pct", "`comp_comm_ns` over `comm_ns`.", "%"),
        whole("exposed_wait_ns", "Of `comm_only_ns`: waiting for ranks.", "ns"),
        whole("exposed_transfer_ns", "Of it: transfers.", "ns"),
        whole("exposed_unmatched_ns", "Of it: what is not matched.", "ns"),
        _time("host_ns", "Idle time for which the host is to blame."),
    ),
)
SEGMENTS: Final = Table(
    "segments",
    "One row per pair of collectives of a rank between which a path runs: how long it takes at "
    f"least from the end of one to the start of the other. {_MANY}",
    (
        _RANK,
        whole(
            "source_id",
            "Joins to `collectives.collective_id`; -1: the beginning of the recording.",
            nullable=False,
        ),
        whole(
            "target_id",
            "Joins to `collectives.collective_id`; -1: the end of the step.",
            nullable=False,
        ),
        whole("step", "Of an end: the step; null: of what is in none."),
        _time("begin_ns", "Beginning of the rank's recording, on its own clock."),
        whole("ns", "As recorded.", "ns"),
        whole("unwaited_ns", "Without waits of streams that are inferred.", "ns"),
        whole("unlagged_ns", "Without any gap.", "ns"),
        whole(
            "clock_error_ns",
            "How far the clocks of the rank's host and device are apart at least; 0: they agree.",
            "ns",
            nullable=False,
        ),
    ),
)
FINDINGS: Final = Table(
    "findings",
    "One row per finding of `pyprof2 check`, problems first.",
    (
        text("severity", "`problem`, `lack` or `info`.", nullable=False),
        Column("finding", pa.string(), "What was found.", nullable=False),
        whole("count", "How often."),
        real("share_pct", "Share of what the finding is about.", "%"),
        Column("advice", pa.string(), "What to do about it."),
        whole("rank", "Process in the job; null: all of them."),
    ),
)
ADVICE: Final = Table(
    "advice",
    "One row per rank and rule that holds for it: first those that fire, the largest gain first.",
    (
        whole("rank", "Process in the job.", nullable=False),
        text("rule", "Its name, as on the page on advice.", nullable=False),
        text(
            "severity",
            "`high`: 10 % of the recorded time or more is expected to be gained (at stake, "
            "where that is not known), `medium`: 3 % or more, `low`; `info`: no time that can be "
            "named; null where the rule is silent.",
        ),
        text(
            "status",
            "`fires`, `silent`, or `unknown`: what decides was not recorded, see `needs`.",
            nullable=False,
        ),
        text("finding", "What was found, in words; null where the rule is silent."),
        whole("at_stake_lo_ns", "What the remedy gains at least.", "ns"),
        whole("at_stake_hi_ns", "What it gains at most.", "ns"),
        whole(
            "expected_ns",
            "What it gains if nothing else changes and, of a "
            "kernel, only if what comes next was launched in time.",
            "ns",
        ),
        text("limit", "What the most is the most of."),
        text("evidence", "Ids of rows, as `kernels:1,2,3 (+40)`; the first few."),
        text("source", "`path:line` that most of it belongs to."),
        text("remedy", "What to do."),
        text("needs", "What to record, where the verdict is `unknown`."),
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
