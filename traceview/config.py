"""Every threshold of the product, in one place; METHODS section in brackets.

They are engineering defaults, not measurements (METHODS k.12), and are printed in the report.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

US = 1_000


@dataclass(frozen=True)
class Config:
    """Thresholds. Times are nanoseconds, shares are fractions."""

    # a.5 idle split
    launch_tau_min_ns: int = 10 * US
    launch_tau_max_ns: int = 50 * US
    sync_refill_max_ns: int = 1_000 * US
    negative_launch_share: float = 0.01
    # b steps
    step_min_launch_share: float = 0.5  # b.1: a last step with fewer launches than this is incomplete
    step_min_used: int = 3
    step_min_cover: float = 0.8  # b.2.2: a counting range must cover this share of the record
    step_join_max: float = 0.25  # steps marked in two ways are one if they begin within this share of a step
    step_join_equal: float = 0.5  # a larger share of equal numbers speaks against what the times say
    step_join_clock_ns: int = 25_000_000  # the clocks of two hosts agree within this, if nothing else tells
    period_min_match: float = 0.95
    period_slack: float = 0.005
    period_min_repeats: int = 3
    # c matching
    overlap_bad: float = 0.5
    overlap_good: float = 0.95
    max_slip: int = 3
    calls_agree: float = 0.8  # c: share of the calls in a log that a trace repeats, if both are of one communicator
    # d clocks
    eta_min_ns: int = 20 * US
    eta_min_instances: int = 5  # d.1: collectives before a rank's own deviation is judged
    fit_min_instances: int = 3  # d.2: collectives before an offset has an error at all
    drift_min_instances: int = 10
    drift_min_span: float = 0.5
    drift_assumed_ppm: float = 50.0
    drift_min_effect_ns: int = 10 * US
    grade_a_sigma_ns: int = 5 * US
    grade_b_sigma_ns: int = 50 * US
    grade_max_violations: float = 0.005
    join_max_bound_ns: int = 50 * US  # d.3: proved error up to which sends and receives alone place a clock
    eps_min_ns: int = 5 * US
    tau_sys_ns: int = 5 * US
    # e stragglers
    late_share: float = 0.01
    late_mads: float = 3.0
    late_min_collectives: int = 3  # of a rank; fewer have no scatter to judge by
    late_chance_errors: float = 5.0  # e.7: standard errors that the sum over the steps must be off the median rank
    late_cost_share: float = 0.1  # e.7: of what the others lost to a rank in its worst step, or the step is not late
    late_significance: float = 0.01  # e.7: P of so many late steps, if it were late as often as the ranks beside it
    last_significance: float = 0.01  # e.7: P of so many last arrivals by chance
    min_blame_share: float = 0.01
    together_share: float = 0.1  # e.7: of the blame of a rank late with it; one that owes less is judged alone
    min_own_share: float = 0.2  # e.7: origin / direct blame below which a rank only relays the lateness of others
    persistent_share: float = 0.70
    transient_share: float = 0.30
    min_steps_for_kind: int = 5
    node_share: float = 0.75
    slower_share: float = 0.05  # e.7: the same kernels slower by less are no proof
    uniform_share: float = 0.10  # e.7: all kernels slower by one factor, to this share: clocks, heat, power
    uniform_weight: float = 0.9  # e.7: of the time of these kernels
    class_transfer_ratio: float = 1.3
    expert_same_share: float = 0.01  # e.6: shares of a mean rank's tokens closer than this are the same
    expert_uneven: float = 0.05  # e.6: loads of experts within this of the mean are even
    # f bandwidth
    busbw_min_bytes_inter: int = 8_000_000
    busbw_min_bytes_intra: int = 4_000_000
    efficiency_healthy: float = 0.7
    efficiency_degraded: float = 0.4
    attained_share: float = 0.8  # f.3: share of a bound that a healthy path reaches
    pcie_attained_share: float = 0.8  # f.3: share of the transfer rate that copies reach
    over_bound: float = 1.02  # f.3: a rate above the bound by more was made by another algorithm or machine
    copy_min_bytes: int = 1_000_000
    copy_slow_share: float = 0.6  # f.4 E3: pinned copies at or below this share of PCIe
    rate_flat_share: float = 0.15  # f.4 E2: sizes within this are one rate
    rate_at_ceiling: float = 1.05  # f.4 E2
    rate_headroom: float = 1.3  # f.4 E2: what the wire allows over the rate reached
    staging_bound_share: float = 0.10  # f.4: a step is staging-bound from here on
    # g utilisation
    precision_told_share: float = 0.25  # with less of the matmul time of a known precision none is assumed
    precision_min_share: float = 0.1  # a precision with less of it is not that of the run, whoever says so
    # h what-if
    replay_warn: float = 0.02  # h.2: a base replay off by more is told
    replay_refuse: float = 0.05  # h.2: a base replay off by more says nothing
    replay_differs: float = 0.2  # h.2: replay and simple bound that differ by more are explained
    replay_rows: int = 100_000  # communication operations in a replay: fewer steps where there are more
    replay_max_rows: int = 300_000  # a single step that has more is not replayed
    replay_max_ops: int = 500_000  # GPU operations of one rank
    replay_max_depth: int = 800  # communication operations of one rank: they come one after the other
    # findings
    finding_min_share: float = 0.02  # a finding that saves less than this share of the step is not shown
    blind_share: float = 0.5  # of more than this nobody knows what it is: no verdict, unless a finding is larger
    healthy_max_unknown: float = 0.05  # a run of which more is unknown is not called healthy
    rule_out_max_share: float = 0.05  # a suspect that may hold more of the step is not ruled out
    estimate_min_collectives: int = 3  # k.3: fewer of a class have no fastest to compare with
    heavy_unclassified_share: float = 0.01
    transient_step_mads: float = 5.0
    # i gate
    gate_min_change: float = 0.03  # i.2: a smaller change of the step time always passes
    gate_run_noise: float = 0.01  # i.2: spread of the median step time from run to run, without a calibration
    gate_z: float = 2.33  # i.2: one-sided 1 %
    gate_autocorrelation: float = 1.3  # i.2: allowance for steps that depend on each other
    gate_min_steps: int = 5  # i.2: with fewer steps a side nothing is decided
    gate_min_runs: int = 3  # i.3: from so many runs a side their medians decide
    gate_p: float = 0.01  # i.3
    gate_pair_correlation: float = 0.5  # i.4: above, steps are compared pair by pair
    history_min_runs: int = 10  # i.4: changes are looked for in no fewer runs
    history_p: float = 0.001  # i.4
    history_min_change: float = 0.02  # i.4: a smaller change of the step time is none
    one_rank_share: float = 0.6  # with more of the blame on one rank it is not "taking turns"

    def as_dict(self) -> dict[str, float]:
        """All thresholds by name, for the report and the result."""
        return asdict(self)


DEFAULT = Config()
