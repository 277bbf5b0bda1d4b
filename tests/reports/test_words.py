"""What every report shares: shares that add up, definitions for everything, names that cannot do harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.results import ALL, EVIL
from traceview.analysis.findings import slow_steps as slow_steps_finding
from traceview.config import DEFAULT
from traceview.result import Result, group_ns
from traceview.schema import GROUPS, LEAVES
from traceview_reports import definitions, verdict, views, views_places, views_quality
from traceview_reports.html.stragglers import slow_steps
from traceview_reports.names import clean
from traceview_reports.tables import Column, parts

TABLES = (
    *views.VIEWS,
    views_places.leading,
    views_quality.hosts,
    views_quality.rank_clocks,
    views_quality.clock_gaps,
    views_quality.matching,
    views_quality.arrivals,
    views_quality.sources,
    views_quality.excluded,
    views_quality.unclassified,
    views_quality.thresholds,
)


@pytest.mark.parametrize("name", ALL)
def test_the_bar_adds_up_to_one_hundred(name: str) -> None:
    result = ALL[name]()
    shown = parts(result)
    assert sum(p.tenths for p in shown) == 1000
    assert sum(p.ns for p in shown) == result.budget.wall_ns
    assert [p.group for p in shown] == list(GROUPS)
    assert all(abs(p.tenths / 1000 - result.budget.shares[p.group]) < 0.001 for p in shown)


@given(st.lists(st.integers(0, 10**15), min_size=len(LEAVES), max_size=len(LEAVES)))
def test_rounded_shares_add_up_whatever_the_leaves(values: list[int]) -> None:
    result = ALL["one_rank"]()
    result.budget.leaves_ns = dict(zip(LEAVES, values, strict=True))
    result.budget.sub_ns = {"comm_wait.nxn": result.budget.leaves_ns["comm_wait"], "comm_wait.p2p": 0}
    shown = parts(result)
    assert sum(p.tenths for p in shown) == (1000 if sum(values) else 0)
    assert all(abs(p.tenths - 1000 * p.share) < 1 for p in shown)


def test_everything_has_a_definition() -> None:
    result = ALL["everything_wrong"]()
    columns: list[Column] = [c for build in TABLES for c in build(result).columns]
    missing = [c.label for c in columns if not definitions.of(c.define)]
    missing += [leaf for leaf in LEAVES if not definitions.of(f"leaf.{leaf}")]
    missing += [group for group in GROUPS if not definitions.of(f"group.{group}")]
    missing += [t.label for t in verdict.tiles(result) if not definitions.of(t.define)]
    missing += [what for what, _, key in views_quality.counts(result) if not definitions.of(key)]
    assert not missing


def test_every_definition_is_a_sentence_of_its_own() -> None:
    texts = [text for _, rows in definitions.glossary() for _, _, text in rows]
    assert not [t for t in texts if not t.endswith((".", "..."))]
    assert not [t for t in texts if ".md" in t or "METHODS" in t]


@pytest.mark.parametrize("build", TABLES, ids=lambda b: b.__name__)
def test_a_table_without_rows_says_why(build: object) -> None:
    empty = Result.from_json(ALL["one_rank"]().to_json())
    for name in ("step_rows", "rank_rows", "kernels", "collective_rows", "copies", "idle", "memory"):
        setattr(empty, name, [])
    empty.run.sources, empty.run.steps.excluded, empty.metrics, empty.thresholds = [], [], {}, {}
    view = build(empty)  # type: ignore[operator]
    assert not view.rows and view.empty.endswith(".")


def test_the_ledger_sums_to_the_straggler_wait() -> None:
    result = ALL["slow_rank"]()
    view = views.blame(result)
    lost = group_ns(result.budget.leaves_ns, result.budget.sub_ns)["straggler wait"]
    assert sum(r.blame_ns for r in view.rows) == lost
    assert view.total[2] == "4.06"


def test_places_all_of_each_kind_or_the_first() -> None:
    result = ALL["slow_rank"]()
    tables = {view.title: view for view in views_places.by_kind(result)}
    assert list(tables) == [f"Blame by {by}" for by in ("host", "rail", "collective", "stage", "replica")]
    rail = tables["Blame by rail"]
    assert [[c.text(r) for c in rail.columns] for r in rail.rows] == [
        ["local rank 1", "1,3", "4.06", "4.06", "100.0", "4.06", "0", "estimated"],
        ["(not told)", "0,2", "0", "0", "0.0", "0", "4.06", "estimated"],
    ]
    assert rail.note.startswith("assumed") and tables["Blame by host"].note == "from the traces"
    assert [c.label for c in tables["Blame by collective"].columns[:3]] == ["name", "ranks", "direct GPU-s"]
    assert tables["Blame by stage"].empty == "Not told: no group is described as a pipeline."
    first = views_places.leading(result)
    assert [(first.columns[0].text(r), r.name) for r in first.rows] == [
        ("rail (assumed)", "local rank 1"),
        ("collective", "0 allreduce"),
    ]
    result.findings = []
    assert not views_places.leading(result).rows, "a healthy run blames no place on its first screen"


def test_the_status_is_not_said_twice() -> None:
    result = ALL["healthy"]()
    assert verdict.claim(result) == "94.9 % of the rank time is compute."
    assert verdict.lines(result)[0].text.startswith("94.9 % of the rank time is compute. 589 ms a step")
    assert verdict.claim(ALL["one_rank"]()) == "Cannot tell who straggles: 1 of 8 ranks was given."
    assert verdict.lines(ALL["slow_rank"]())[0].text.startswith("560 ms a step"), "the cause has the headline"


def test_one_card_when_it_holds_four_fifths() -> None:
    result = ALL["slow_rank"]()
    assert len(verdict.first(result)) == 3
    result.findings[0].saving_ns_per_step = 10**9
    assert [f.id for f in verdict.first(result)] == ["straggler"]
    result.findings.reverse()
    assert verdict.ordered(result)[0].id == "straggler"


@given(st.text(max_size=300), st.integers(3, 50))
def test_clean_names_are_one_short_printable_line(text: str, limit: int) -> None:
    out = clean(text, limit)
    assert len(out) <= limit and "\n" not in out and "\x1b" not in out and "\u2028" not in out and "\u202e" not in out
    assert clean(out, limit) == out


def test_clean_keeps_what_is_harmless() -> None:
    assert clean("void at::native::vectorized_elementwise_kernel<4, µ>") == (
        "void at::native::vectorized_elementwise_kernel<4, µ>"
    )
    assert "\x1b" not in clean(EVIL)
    assert len(clean("x" * 5_000_000)) == 200


def test_a_host_that_no_file_names_has_no_name() -> None:
    result = ALL["one_rank"]()
    result.rank_rows[0].host = "?rank0"
    assert views.ranks(result).columns[1].text(result.rank_rows[0]) == "-"


def test_no_rank_is_the_slowest_of_even_ones() -> None:
    row = ALL["one_rank"]().step_rows[0]
    slowest = next(c for c in views.steps(ALL["one_rank"]()).columns if c.label == "slowest")
    row.min_ns, row.max_ns, row.wall_ns = 999_999, 1_000_001, 1_000_000
    assert slowest.text(row) == "-"
    row.max_ns = 1_020_000
    assert slowest.text(row) == str(row.slowest_rank)


def test_a_typical_step_is_that_of_the_finding_also_among_many_outliers() -> None:
    result = ALL["healthy"]()
    for place, step in enumerate(result.step_rows):
        step.wall_ns, step.outlier = 500_000_000 + place, False
    for step in result.step_rows[-4:]:
        step.wall_ns, step.outlier = 900_000_000, True
    (finding,) = slow_steps_finding.find(result, DEFAULT)
    usual = len(result.step_rows) - 4
    typical = result.step_rows[(usual - 1) // 2].step
    assert f"against step {typical} " in finding.evidence[1]
    assert slow_steps(result).note.endswith(f"typical: step {typical}")
