"""One definition for every leaf, group, metric and column: the hover texts and the glossary of all reports.

Each is one or two sentences with the formula. ``of(key)`` falls back to the part after the last dot, so a column
may have a definition of its own (``copies.rate``) or share one (``rank``).
"""

from __future__ import annotations

from collections.abc import Iterator

LEAVES = {
    "compute": "At least one compute kernel runs on the GPU. It comes first: time that arithmetic hides is not "
    "exposed.",
    "gpu_opaque": "A record that hides its contents runs (a CUDA graph recorded as one interval). Counted with "
    "compute; "
    "communication inside cannot be seen.",
    "comm_transfer": "No compute kernel runs and some communication kernel moves data: the part of the kernel "
    "after "
    "the last member arrived, [L, end).",
    "comm_unresolved": "A communication kernel runs, but not every member was seen, so waiting and transfer "
    "cannot be told apart.",
    "comm_wait": "Every active communication kernel is provably waiting for a member that has not arrived, "
    "[start, L). A lower bound: nothing moves in it.",
    "pcie_d2h": "Only copies from device to host run.",
    "pcie_h2d": "Only copies from host to device run.",
    "comm_host": "A collective on the host (gloo, MPI, UCC) is in flight and the GPU does nothing that ranks "
    "above it.",
    "gpu_d2d": "Only copies within the device run.",
    "gpu_memset": "Only memory sets run.",
    "gpu_other": "Only GPU work of another class runs.",
    "uncovered": "Nothing on the GPU, and the window lies outside the recorded range or in a stretch known to "
    "be lost.",
    "idle_data": "The GPU is idle and the launching thread waits for input data.",
    "idle_sync": "The GPU is idle because the launching thread was inside a blocking call, or refills the queue "
    "right after one (at most 1 ms).",
    "idle_host": "The GPU is idle while the launching thread runs host code before the next launch.",
    "idle_launch": "The GPU is idle for the latency of a launch (per rank 10 to 50 µs, twice the median).",
    "idle_unknown": "The GPU is idle and the trace does not show why: work was queued behind an event, or no host "
    "activity was recorded.",
}

GROUPS = {
    "compute": "Compute kernels and opaque graphs: leaves compute + gpu_opaque.",
    "exposed communication": "Communication that no compute hides: leaves comm_transfer + comm_unresolved + "
    "comm_host. "
    "Waiting for a late rank is not in it.",
    "straggler wait": "Time in collectives spent waiting for a late rank: leaf comm_wait, n x n part. "
    "The blame ledger splits exactly this sum.",
    "pipeline wait": "Waiting in send and receive: leaf comm_wait, point-to-point part. Largely the pipeline "
    "schedule, "
    "so it is kept outside the straggler total.",
    "PCIe staging": "Copies between host and device that nothing hides: leaves pcie_d2h + pcie_h2d.",
    "other GPU": "Device copies, memory sets and other GPU work alone: leaves gpu_d2d + gpu_memset + gpu_other.",
    "idle": "Nothing runs on the GPU: leaves idle_data + idle_sync + idle_host + idle_launch + idle_unknown.",
    "uncovered": "The trace has no record here, so nothing is claimed.",
}

METRICS = {
    "step_time": "Median over steps of T_k, where T_k = median over ranks of the step's window.",
    "step_time_p95": "95th percentile of T_k over the used steps (the lower of the two nearest).",
    "step_time_max": "Largest T_k of the used steps.",
    "goodput": "Goodput of the captured steps = (compute + opaque - excess) / rank time; excess = compute time "
    "above "
    "what the same kernel takes on its peers or in the baseline. A slower GPU never raises it.",
    "job_goodput": "Productive step time kept / elapsed time of the job. Needs a run log; a trace of some steps "
    "cannot tell.",
    "compute_share": "(compute + opaque) / rank time, without taking off excess time of slow kernels.",
    "overlap_transfer": "|transfer and compute at once| / |transfer|: the share of data movement hidden behind "
    "compute. "
    "Waiting is not in it, so a straggler cannot change it.",
    "overlap_comm": "|communication and compute at once| / |communication|, waiting included (the definition of "
    "HolisticTraceAnalysis, kept for comparison).",
    "overlap_potential": "|transfer and compute at once| / min(|transfer|, |compute|): 1 = nothing more can be "
    "hidden.",
    "staging_overlap": "Share of host-device copy time that runs beside compute or communication.",
    "exposed_share": "Exposed communication / rank time. Waiting for late ranks is not in it.",
    "mfu": "Model FLOPs utilisation = model FLOPs per token x tokens/s / (GPUs x dense peak of the used precision), "
    "with everything that a step takes. The FLOPs come from --params and --tokens-per-step or --flops-per-step; "
    "recomputation is not counted.",
    "mfu_of_compute": "MFU / compute share: how well the arithmetic runs while it runs.",
    "hfu": "Hardware FLOPs utilisation: FLOPs executed, recomputation too, / (rank time x dense peak). From the "
    "shapes that record_shapes or with_flops leave: products and convolutions alone (no attention, no fused kernels, "
    "no backward of convolutions), so a lower bound; the basis says which share of the compute time it covers.",
    "goodput_ceiling": "Goodput x dense peak of one GPU: what perfect arithmetic would reach in the time in which "
    "work progresses.",
    "busbw": "Bus bandwidth = size / time x f, f = 2(n-1)/n for all-reduce, (n-1)/n for all-gather, "
    "reduce-scatter and "
    "all-to-all, 1 else. Decimal GB/s, from last arrival to last end.",
    "busy": "Share of rank time with any GPU record. A kernel that spins for a late peer counts as busy.",
    "busy_no_wait": "Busy share without the waiting in collectives.",
    "starvation": "(idle for data + exposed copies to the device) / rank time.",
    "step_time_if_replaced_replay": "Step time if the named stragglers were typical: the used steps are played "
    "again with their work at the lower median of their peers, and everything that depends on it moves.",
    "step_time_if_balanced_replay": "Step time with equal op times: work at the mean of the peers, stages of a "
    "pipeline made equal, host stalls at the typical time; played again.",
    "straggler_wait_left": "Exposed straggler wait per rank and step that is left if the named stragglers are "
    "typical, beyond that with equal op times: what nobody named explains.",
    "replay_error": "Largest relative difference of a step between the replay without a change and the record: "
    "from 2 % on the answers are told with care, from 5 % on there is none.",
    "pipeline_straggler": "Send and receive waiting per rank and step that a replay with equal op times does not "
    "have: a slow stage or rank makes it.",
    "pipeline_uneven": "The part of it that stays when every rank is as the typical one of its stage: the stages "
    "themselves are uneven.",
    "pipeline_bubble": "The rest of the send and receive waiting: the pipeline schedule. With pipeline_straggler "
    "it adds up to the pipeline wait.",
    "even_tokens_gain": "What even tokens in all expert groups would take off a step: the gain of the group of the "
    "rank that is last, and what that rank waits elsewhere, at most the largest gain of a group.",
    "straggler_share": "Straggler wait / rank time.",
}

COLUMNS = {
    "rank": "Global rank of the process.",
    "host": "Host of the rank; a name that begins with ? is not told by the files and each such rank counts as "
    "a host.",
    "device": "Device ordinal as the profiler of that process counts.",
    "device_name": "GPU model as recorded.",
    "step": "Step number as the marks of the trace count.",
    "wall": "Step time T_k: the median over ranks of the step's window.",
    "ranks.wall": "Sum of the rank's windows over the used steps.",
    "min": "Shortest window of the step over ranks.",
    "max": "Longest window of the step over ranks.",
    "slowest_rank": "The rank with the longest window of the step; - where all are even to 1 %.",
    "outlier": "Step time above median + 5 x median absolute deviation of the used steps.",
    "late": "How late the rank arrives: sum over collectives of (arrival - median arrival) where positive.",
    "late_steps": "Steps in which the rank is late / used steps. Late = lateness above max(1 % of the step, "
    "3 robust deviations, the clock error).",
    "truncated": "The file of this rank ends early; its counts are floors.",
    "blame": "Waiting of others that this rank caused directly: every exposed wait is cut at the arrivals and "
    "shared "
    "equally by the members still missing. The column sums to the straggler wait.",
    "origin_blame": "Direct blame after passing on what the rank itself lost waiting for others: who started "
    "the delay.",
    "blame_inclusive": "Blame over all waiting in collectives, also where compute hides it.",
    "by": "What the ledger is summed by: host, pipeline stage, data-parallel replica, NIC rail, or class of "
    "collectives (group and kind). Assumed where no file tells it.",
    "blame_by.name": "Name of the place; (not told) for the ranks of which nothing tells it.",
    "blame_by.ranks": "Ranks of the place; for a class of collectives, of its group.",
    "blame_by.share": "Share of all blame that started in the place, or is owed at least; for a class of collectives "
    "of direct blame.",
    "blame_by.at_least": "Waiting for the place in collectives of which members are missing: owed at least, on top.",
    "blame_by.waited": "GPU time that the ranks of the place lost waiting themselves; for a class of collectives, "
    "all straggler wait in it.",
    "experts.pairs": "Pairs of all-to-alls a step: dispatch brings the tokens of its experts to every rank, combine "
    "takes them back.",
    "experts.imbalance": "Elements that the busiest rank received in a dispatch over the mean of the group; mean "
    "and maximum over the pairs of the used steps.",
    "experts.rank": "The rank whose tokens cost most: the busiest of the pairs with the largest gain.",
    "experts.moves": "The busiest rank changes from step to step, or from layer to layer within a step; empty = one "
    "rank holds most of the gain.",
    "experts.gain": "How much earlier the combines would begin with even tokens: where GPUs are alike, largest minus "
    "mean of the compute between dispatch and combine, as far as others wait for it.",
    "experts.wait": "Mean exposed wait of a rank at the combines.",
    "experts.last": "Combines at which the rank with the most tokens arrives last / combines.",
    "experts.pace": "Time per token of that rank over that of a typical one: 1 = its GPU is not slow.",
    "experts.share": "Share of the compute between dispatch and combine that follows the tokens; the rest does not.",
    "experts.correlation": "Rank correlation of received elements and arrival at the combine, within the pairs.",
    "experts.told": "Whether the trace tells the sizes of the all-to-alls. Without them tokens are unknown and pairs "
    "are assumed from names or order.",
    "straggler.load": "Tokens that the experts of this rank received over the mean of the group, where it was late.",
    "last": "The whole wait given to the last arriver (as most tools do), for comparison.",
    "marginal": "What fixing only the last arriver would save: (n-1) x (last arrival - the one before).",
    "waited": "Time this rank lost waiting for late members (exposed, n x n).",
    "last_count": "In how many collectives the rank was the last to arrive, of those observed.",
    "kind": "Kind of collective.",
    "straggler.kind": "persistent: late in >= 70 % of at least 5 steps; transient: in <= 30 %; intermittent: "
    "between; "
    "too few steps: fewer than 5 used steps.",
    "place": "What is slow as one: gpu, node (>= 75 % of a host's ranks late), stage, replica or rail.",
    "cause": "The largest positive term of the exact explanation of the lateness.",
    "term": "Difference of one leaf between the late rank and the reference rank; the terms add up to the lateness.",
    "quality": "proved | estimated | lower bound | upper bound | unavailable.",
    "names": "Kernels or ranges that differ from the reference rank, the largest first.",
    "group": "Process group or communicator.",
    "size_class": "Message sizes of the class.",
    "n": "Number of operations (instances) in the row.",
    "matched": "Instances of which every member was seen and matched.",
    "group_size": "Number of ranks in the group.",
    "bytes": "Sum of bytes.",
    "collectives.bytes": "Message size S as nccl-tests counts it.",
    "wait": "Time in the operation before the last member arrived, summed over members. "
    "'-' = nobody's arrival is known, so that the transfer may be waiting.",
    "transfer": "Time in the operation after the last member arrived, summed over members.",
    "exposed": "The part that nothing more useful hides.",
    "algbw": "Algorithm bandwidth = size / time, decimal GB/s.",
    "peak": "Expected bound of the link for this group, GB/s per rank and direction.",
    "efficiency": "busbw / bound: healthy from 0.7, degraded from 0.4, suspect below.",
    "tier": "Which link carries the group: inside an NVLink domain, host, rack ...",
    "transport": "How the library moves the data, from its log.",
    "algorithm": "Algorithm and protocol, from the library's log.",
    "verdict": "Healthy, degraded, suspect, or why there is no verdict.",
    "direction": "Direction of the copy.",
    "mem": "Host memory: pageable copies are slow and block the host, pinned ones are not.",
    "count": "Number of records.",
    "total": "Sum of durations.",
    "mean": "Mean duration.",
    "longest": "Longest duration.",
    "rate": "Bytes / duration, only over copies of at least 1 MB.",
    "rate_n": "Copies of at least 1 MB that the rate is from.",
    "idle.cause": "Leaf of the idle time.",
    "tag": "What the host did: allocation, module load, garbage collection, queued ...",
    "time": "Sum over ranks and used steps.",
    "share": "Share of the rank time of all used windows.",
    "peak_allocated": "Largest allocated device memory in the record.",
    "peak_reserved": "Largest memory reserved by the allocator in the record.",
    "allocator_calls": "Calls of the driver's allocation functions; in a steady step there should be none.",
    "kernel": "Kernel or copy name as recorded.",
    "class": "Activity class; it is decided by the name, never by the stream.",
    "ranks_n": "On how many ranks the kernel ran.",
    "op": "Operator that launched most of it.",
    "range.kind": "An operator, or an annotation (record_function, NVTX, module).",
    "range.count": "Number of host ranges of that name in the record.",
    "range.ops": "GPU operations launched inside, in the used steps.",
    "range.self": "Summed GPU time of what was launched inside and in no inner range of the kind.",
    "range.gpu": "Summed GPU time of all that was launched inside; nested ranges of one name count once.",
    "hops": "Ranks the critical path visits, in order.",
    "path.wall": "Span of the critical path of the step; its leaves sum to it and hold no waiting.",
    "offset": "Offset of the host's clock: true = local + offset + drift x (local - reference time).",
    "drift": "Drift of the host's clock in parts per million.",
    "sigma": "Robust standard error of the offset.",
    "bound": "Provable error bound of the offset: no member can end before the last one starts.",
    "grade": "A: one host or error <= 5 µs; B: <= 50 µs; C: worse, disconnected or violated: clock-free values "
    "are used.",
    "violations": "Collectives that end before their last member arrives: a clock or matching error. They blame "
    "nobody.",
    "component": "Hosts linked by common collectives. Across components nothing is compared, unless their sends and "
    "receives prove where they stand.",
    "instances": "Collectives the fit is from.",
    "clock.basis": "What the offset rests on. Sends and receives only: a receive cannot end before its send begins; "
    "messages both ways leave an interval, the offset is its middle and ± its half. Errors of a chain of hosts add "
    "up; the grade is that between neighbours.",
    "eta": "Offset of one rank's clock against its host.",
    "host_axis_shift": "Shift of the host axis against the GPU axis, when many kernels start before their launch.",
    "clock_free_gap": "Median difference of aligned and clock-free waiting, a cross-check.",
    "members": "Ranks of the group.",
    "level": "How instances were matched: K1 sequence numbers, K2 order in the step, K3 aligned signatures, K4 "
    "order in time.",
    "partial": "Instances of which some members are missing.",
    "unmatched": "Operations without a partner.",
    "ambiguous": "Instances whose match is not certain; they stay unresolved.",
    "mean_late": "Mean lateness after the median member.",
    "arrival.last": "How often the rank was the last to arrive.",
    "file": "Input file.",
    "format": "Format found by the first bytes.",
    "schema_class": "Variant of the format.",
    "events": "Records read.",
    "repaired": "Records kept after a repair.",
    "quarantined": "Records set aside because they cannot be true.",
    "dropped": "Records lost: broken text or buffers.",
    "reason": "Why the step is not in the statistics.",
    "value": "Value of the number.",
    "basis": "From what the number was computed.",
    "threshold": "Engineering default of the analysis; times in ns, shares as fractions.",
    "history.run": "Number of the run in order of time.",
    "history.started": "Begin of the recording.",
    "history.name": "Name of the run: its folder or file.",
    "history.label": "Kept with the run, as given.",
    "history.steps": "Used steps.",
    "history.job": "Name of the job, as given; jobs are told apart by world size and GPU too.",
    "history.ranks": "World size.",
    "history.runs": "Number of runs.",
    "history.changes": "How often its step time changed.",
    "history.number": "Its number in the figures.",
    "history.change": "Median step time after over that before, minus 1.",
    "history.before": "Median step time of the runs of the stretch.",
    "history.what": "Change of the mean step by group, the largest first.",
    "history.p": "Chance that there is no change, corrected for the places looked at.",
    "history.who": "Who made the others wait: the host, or the rank where no host is told.",
    "history.changed": "From this run on the step time is another one: beyond chance (1 in 1,000) and by 2 %.",
    "history.verdict": "Headline of its verdict.",
    "versus.side": "Baseline: before the change; candidate: with it.",
    "versus.judged": "By what the candidate's step time differs, as the rule estimates it; this is held against the "
    "threshold.",
    "versus.rule": "How the change is judged: by steps, paired steps, runs, or against the runs of a pool.",
    "versus.order": "Place among the used steps of its run.",
    "versus.only": "Found in the candidate only, or in the baseline only.",
    "versus.finding": "Its title.",
    "versus.differs": "A fact in which the runs differ, or what limits them.",
    "whatif.title": "What changes; nothing else does.",
    "whatif.saves": "Step time as recorded minus that by the replay, or by the cautious end of the bound.",
    "whatif.share": "Of the recorded step time.",
    "whatif.hours": "GPU hours of the ranks seen that this saves in a day of running.",
    "whatif.bound": "Step time by the simple bound: the recorded one minus the exposed time of what goes.",
    "whatif.replay": "Step time by a replay of the recorded steps with that one change.",
    "whatif.next": "Largest part of the replayed step along its critical path: the next limit.",
    "whatif.quality": "Estimated; a lower or upper bound where something is missing or left out.",
    "whatif.options": "Option of traceview what-if that asks it.",
    "versus.step": "Median over the used steps.",
    "versus.part": "Part of a step: mean over ranks and used steps.",
    "versus.baseline": "In the baseline.",
    "versus.candidate": "In the candidate.",
    "versus.change": "Candidate minus baseline.",
    "versus.name": "Name as recorded.",
    "versus.longer": "New count times the change of the mean time of one.",
    "versus.more": "Change of the count times the old mean time of one; all of it where a name is new or gone.",
    "versus.each": "Mean time of one.",
    "versus.count": "Per rank and step.",
    "slow_median": "Difference per rank between the slow steps and the median of the other steps.",
}

TITLES = {
    "straggler": "Straggler: a rank that makes others wait. It is the one with the least communication time.",
    "confidence": "proved: follows from the stamps within the clock error; likely and possible: evidence is named; "
    "cannot tell: something is missing.",
    "rank_time": "Sum over ranks of the used windows; 100 % of the bar.",
}

ALL: dict[str, str] = (
    COLUMNS
    | TITLES
    | METRICS
    | {f"group.{k}": v for k, v in GROUPS.items()}
    | {f"leaf.{k}": v for k, v in LEAVES.items()}
)


def key_of(name: str) -> str:
    """The key under which ``name`` is defined: itself, or the part after its last dot; '' if there is none."""
    if name in ALL:
        return name
    tail = name.rpartition(".")[2]
    return tail if tail in ALL else ""


def of(name: str) -> str:
    """The definition of a leaf ('leaf.x'), group ('group.x'), metric or column; '' if there is none."""
    return ALL.get(key_of(name), "")


def glossary() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """(heading, [(key, term, text)]) in the order of the page."""
    yield "Groups of the bar", [(f"group.{k}", k, v) for k, v in GROUPS.items()]
    yield "Leaves, in order of priority", [(f"leaf.{k}", k, v) for k, v in LEAVES.items()]
    yield "Metrics", [(k, k, v) for k, v in METRICS.items()]
    yield "Words and columns", [(k, k.replace("_", " ").replace(".", ": "), v) for k, v in (TITLES | COLUMNS).items()]
