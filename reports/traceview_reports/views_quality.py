"""The tables about the input and the trust in it: clocks, matching, sources, losses, thresholds."""

from __future__ import annotations

from operator import attrgetter as at
from operator import itemgetter as item

from traceview import units
from traceview.result import Result
from traceview_reports.names import clean, host
from traceview_reports.tables import Column, View


def hosts(result: Result) -> View:
    """Clock fit of every host."""
    columns = (
        Column("host", "name", lambda r: host(r.host), "host"),
        Column("grade", "text", at("grade"), "grade"),
        Column("offset", "time", at("offset_ns"), "offset"),
        Column("drift ppm", "number", at("drift_ppm"), "drift"),
        Column("error", "time", at("sigma_ns"), "sigma"),
        Column("proved bound", "time", at("bound_ns"), "bound"),
        Column("violations", "int", at("violations"), "violations"),
        Column("component", "id", at("component"), "component", 2),
        Column("from", "int", at("instances"), "instances", 2),
        Column("basis", "text", at("basis"), "clock.basis"),
    )
    return View(
        "hosts",
        "Clocks of the hosts",
        columns,
        result.clock.hosts,
        "No clock was fitted: there is one rank, or no collective that several ranks share.",
        "true = local + offset + drift x (local - reference time)",
    )


def rank_clocks(result: Result) -> View:
    """Ranks whose clock was touched."""
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("against its host", "time", at("eta_ns"), "eta"),
        Column("host axis shift", "time", at("host_axis_shift_ns"), "host_axis_shift"),
    )
    rows = [r for r in result.clock.ranks if r.eta_ns or r.host_axis_shift_ns]
    return View("rank-clocks", "Corrected ranks", columns, rows, "No rank needed a correction of its own.", "")


def clock_gaps(result: Result) -> View:
    """Cross-check of aligned and clock-free waiting."""
    columns = (
        Column("group", "name", item(0), "group"),
        Column("difference", "time", item(1), "clock_free_gap"),
    )
    rows = sorted(result.clock.clock_free_gap_ns.items(), key=lambda kv: -kv[1])
    return View("clock-gaps", "Aligned against clock-free waiting", columns, rows, "No group to compare.", "")


def matching(result: Result) -> View:
    """Matching of collectives per group."""
    columns = (
        Column("group", "name", at("group"), "group"),
        Column("ranks", "name", at("members"), "members"),
        Column("level", "text", at("level"), "level"),
        Column("instances", "int", at("instances"), "instances"),
        Column("matched", "int", at("matched"), "matched"),
        Column("partial", "int", at("partial"), "partial"),
        Column("unmatched", "int", at("unmatched"), "unmatched"),
        Column("ambiguous", "int", at("ambiguous"), "ambiguous"),
        Column("note", "prose", at("note"), "basis", 2),
    )
    rows = sorted(result.matching, key=lambda r: -(r.partial + r.unmatched + r.ambiguous))
    return View("matching", "Matching of collectives", columns, rows, "There are no collectives to match.", "")


def arrivals(result: Result) -> View:
    """Who arrives late in which class of collectives."""
    columns = (
        Column("group", "name", at("group"), "group"),
        Column("kind", "text", at("kind"), "kind"),
        Column("rank", "id", at("rank"), "rank"),
        Column("n", "int", at("n"), "n"),
        Column("mean late", "time", at("mean_late_ns"), "mean_late"),
        Column("times last", "int", at("last"), "arrival.last"),
    )
    rows = sorted(result.arrivals, key=lambda r: -r.mean_late_ns * r.n)
    return View(
        "arrivals",
        "Arrivals",
        columns,
        rows,
        "No arrivals: no collective was matched on several ranks.",
        "after the median member; the largest sum comes first",
    )


def sources(result: Result) -> View:
    """Input files."""
    columns = (
        Column("rank", "id", at("rank"), "rank"),
        Column("file", "name", at("path"), "file"),
        Column("format", "text", at("format"), "format"),
        Column("variant", "text", at("schema_class"), "schema_class", 2),
        Column("size", "size", at("bytes"), "bytes"),
        Column("records", "int", at("events"), "events"),
        Column("repaired", "int", at("repaired"), "repaired"),
        Column("set aside", "int", at("quarantined"), "quarantined"),
        Column("lost", "int", at("dropped"), "dropped"),
        Column("cut", "flag", at("truncated"), "truncated", 2),
        Column("warnings", "lines", at("warnings"), "reason", 2),
    )
    rows = sorted(
        result.run.sources,
        key=lambda s: (-(s.dropped + s.quarantined + s.repaired), s.rank is None, s.rank or 0, s.path),
    )
    return View("sources", "Input files", columns, rows, "No input file.", "damaged files come first, then by rank")


def excluded(result: Result) -> View:
    """Steps that are not in the statistics."""
    columns = (
        Column("step", "id", at("step"), "step"),
        Column("reason", "prose", at("reason"), "reason"),
    )
    return View("excluded", "Steps left out", columns, result.run.steps.excluded, "Every step is used.", "")


def unclassified(result: Result) -> View:
    """Heavy kernels that no rule names."""
    columns = (
        Column("kernel", "name", at("name"), "kernel"),
        Column("time", "time", at("ns"), "time"),
    )
    rows = sorted(result.quality.unclassified, key=lambda r: -r.ns)
    return View("unclassified", "Kernels without a class", columns, rows, "Every heavy kernel has a class.", "")


def thresholds(result: Result) -> View:
    """All thresholds of the analysis."""
    columns = (
        Column("threshold", "text", item(0), "threshold"),
        Column("value", "number", item(1), "threshold"),
    )
    rows = list(result.thresholds.items())
    return View(
        "thresholds",
        "Thresholds",
        columns,
        rows,
        "The result does not list them.",
        "engineering defaults, times in ns, shares as fractions",
    )


def counts(result: Result) -> list[tuple[str, int, str]]:
    """(what, how many, definition) of everything repaired, dropped or in doubt."""
    q = result.quality
    return [
        ("records repaired", q.repaired, "repaired"),
        ("records set aside", q.quarantined, "quarantined"),
        ("records lost", q.dropped, "dropped"),
        ("kernels without launch", q.unmatched_kernels, "unmatched"),
        ("kernels before their launch", q.negative_launches, "host_axis_shift"),
        ("overlapping records clipped", q.clipped_overflows, "quarantined"),
        ("clock violations", q.violations, "violations"),
    ]


def notes(result: Result) -> list[str]:
    """Everything that limits the trust in the numbers, as sentences: losses first, then warnings and assumptions."""
    run, q = result.run, result.quality
    out = [f"{what}: {n:,}" for what, n, _ in counts(result) if n]
    if run.missing_ranks:
        out.append(
            f"{len(run.missing_ranks):,} of {run.world_size or 0:,} ranks missing: {units.ranks(run.missing_ranks)}"
        )
    cut = [s.rank for s in run.sources if s.truncated and s.rank is not None]
    if cut:
        out.append(f"files cut short, their counts are floors: rank {units.ranks(cut)}")
    out += [f"step {e.step} left out: {clean(e.reason)}" for e in run.steps.excluded]
    out += [f"no class for {clean(u.name, 60)} ({units.time(u.ns)})" for u in q.unclassified]
    out += [clean(w, 400) for w in q.warnings]
    return out + [f"assumed: {clean(a, 400)}" for a in q.assumptions]
