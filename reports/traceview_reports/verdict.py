"""The first screen, in words: the same lines, bar caption, tiles and cards for every report."""

from __future__ import annotations

from dataclasses import dataclass, replace

from traceview import units
from traceview.result import Finding, Metric, Result
from traceview.result.versus import class_name
from traceview_reports.names import clean
from traceview_reports.tables import metric

_MARKS = {"upper_bound": "≤ ", "lower_bound": "≥ ", "estimated": "≈ "}
TONES = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "warn"}  # of the outcomes of a gate
STATUS = {"slow": "SLOW", "healthy": "HEALTHY", "cannot_tell": "CANNOT TELL"}


@dataclass(frozen=True)
class Line:
    """A labelled line of the verdict."""

    label: str
    text: str


@dataclass(frozen=True)
class Tile:
    """A key number: ``define`` names its definition, ``note`` its basis, ``delta`` its change from a baseline."""

    label: str
    value: str
    note: str
    define: str
    delta: str = ""
    tone: str = ""
    """good | bad | warn, where the change was judged"""


def claim(result: Result) -> str:
    """The headline, without the status where that stands before it already."""
    word, colon, rest = result.verdict.headline.partition(":")
    if colon and rest.strip() and word.strip().upper() == STATUS.get(result.verdict.status):
        text = clean(rest.strip(), 300)
        return text[:1].upper() + text[1:]
    return clean(result.verdict.headline, 300)


def lines(result: Result) -> list[Line]:
    """Status, cause, cost, what to do, rule-outs, next limit, coverage: those that are known.

    Reports without a heading of their own for ``verdict.headline`` need no other line.
    """
    v = result.verdict
    # A cause that repeats the headline leaves "slow against what" for the first line.
    repeated = bool(v.slow) and v.headline.strip(" .").lower() in v.cause.lower()
    first = v.slow if repeated else _sentences(claim(result), v.slow)
    do = f"{v.do.rstrip('. ')}. Owner: {v.owner}." if v.do and v.owner else v.do
    cause = f"{v.cause} ({v.confidence})" if v.cause and v.confidence else v.cause
    texts = (
        (STATUS.get(v.status, v.status.upper()), first),
        ("CAUSE", cause),
        ("COST", v.cost),
        ("DO", do),
        ("NOT", v.rule_outs),
        ("NEXT", v.next),
        ("MFU", _mfu(result)),
        ("SEEN", v.coverage.replace("  ", " · ")),
    )
    return [Line(label, clean(text, 600)) for label, text in texts if text]


def _mfu(result: Result) -> str:
    """MFU with what it rests on, and what the time lost leaves; nothing where it is not known."""
    m = result.metrics
    value, of_compute, goodput = (m.get(name) for name in ("mfu", "mfu_of_compute", "goodput"))
    if value is None or value.value is None:
        return ""
    text = f"{_MARKS.get(value.quality, '')}{units.share(value.value)}: {value.basis}"
    if of_compute is not None and of_compute.value is not None:
        text += f". While it computes {units.share(of_compute.value)}"
    if goodput is not None and goodput.value is not None:
        text += f"; goodput leaves at most {units.share(goodput.value)}"
    return text


def _sentences(*texts: str) -> str:
    """The texts that are there, each once, as sentences."""
    known = list(dict.fromkeys(t.strip() for t in texts if t.strip()))
    return " ".join(t if t.endswith((".", "!", "?")) or t is known[-1] else f"{t}." for t in known)


def title(finding: Finding) -> str:
    """The claim, as a line of its own begins."""
    text = clean(finding.title)
    return text[:1].upper() + text[1:]


def hundred_percent(result: Result) -> str:
    """What 100 % of the bar is."""
    return (
        f"100.0 % = {units.time(result.budget.wall_ns)} of rank time: "
        f"{units.count(len(result.run.ranks), 'rank')} × {units.count(len(result.run.steps.used), 'step')}"
    )


def ordered(result: Result) -> list[Finding]:
    """Findings by saving per step, those without a number last."""
    return sorted(result.findings, key=lambda f: -(f.saving_ns_per_step or -1))


def first(result: Result) -> list[Finding]:
    """The cards: at most five; only one if it holds 80 % of the savings of all."""
    found = ordered(result)
    total = sum(f.saving_ns_per_step or 0 for f in found)
    if found and total and (found[0].saving_ns_per_step or 0) >= 0.8 * total:
        return found[:1]
    return found[:5]


def saving(result: Result, finding: Finding, *, short: bool = False) -> str:
    """'−58.0 ms a step' ('of the record' without steps), with what a replay says where there is one, unless short."""
    ns, replay = finding.saving_ns_per_step, finding.replay_ns_per_step
    played = f" [replay −{units.time(replay)}]" if replay is not None and not short else ""
    return f"−{units.time(ns)} {result.run.steps.per}{played}" if ns else "saving unknown"


def tiles(result: Result) -> list[Tile]:
    """Goodput and the ceiling it leaves, MFU or else HFU if known, overlap, busbw against its bound, step time.

    Each tells its change from a baseline, where one was given.
    """
    m = result.metrics
    out = [_goodput(m)]
    if "mfu" in m and m["mfu"].value is not None:
        out.append(_tile("MFU", m["mfu"], "mfu"))
    elif "hfu" in m and m["hfu"].value is not None:
        out.append(_tile("HFU, recomputation counted", m["hfu"], "hfu"))
    out.append(_tile("transfer hidden by compute", m.get("overlap_transfer"), "overlap_transfer"))
    out = [replace(tile, delta=_points(result, tile.define)) for tile in out]
    out.append(_busbw(result))
    out.append(_steps(result))
    return out


def _points(result: Result, name: str) -> str:
    """A share beside that of the baseline, in percentage points: percent of percents would mislead."""
    before = result.against.metrics.get(name) if result.against else None
    now = result.metrics[name].value if name in result.metrics else None
    if before is None or now is None:
        return ""
    return f"{(now - before) * 100:+.1f} points, baseline {units.share(before)}".replace("-", "−")


def _tile(label: str, value: Metric | None, define: str) -> Tile:
    if value is None or value.value is None:
        return Tile(label, "-", clean(value.basis, 140) if value else "not measured", define)
    return Tile(
        label, _MARKS.get(value.quality, "") + metric(value.value, value.unit), clean(value.basis, 240), define
    )


def _goodput(metrics: dict[str, Metric]) -> Tile:
    """Goodput, and with the peak known the arithmetic that it leaves."""
    tile = _tile("goodput of the captured steps", metrics.get("goodput"), "goodput")
    ceiling = metrics.get("goodput_ceiling")
    if ceiling is None or ceiling.value is None:
        return tile
    return replace(tile, note=clean(f"leaves {units.flops(ceiling.value)} a GPU: {ceiling.basis}", 240))


def _busbw(result: Result) -> Tile:
    """The class of collectives with the most transfer that has a bandwidth."""
    rows = [(r, r.busbw) for r in result.collective_rows if r.busbw is not None]
    if not rows:
        return Tile("bus bandwidth", "-", "no collective with a size and a full match", "busbw")
    row, busbw = max(rows, key=lambda r: r[0].transfer_ns)
    bound = (
        f"{units.share(row.efficiency)} of {row.peak:,.0f} GB/s" if row.efficiency and row.peak else "bound unknown"
    )
    before = result.against.busbw.get(class_name(row)) if result.against else None
    delta = f"{units.change_share(busbw / before - 1)}, baseline {metric(before, 'GB/s')}" if before else ""
    note = f"{bound}, {row.size_class}"
    return Tile(f"{clean(row.kind, 20)} busbw", metric(busbw, "GB/s"), note, "busbw", delta)


def _steps(result: Result) -> Tile:
    """Median, 95th percentile and maximum, as the metrics have them; else picked from the sorted steps."""
    walls = sorted(s.wall_ns for s in result.step_rows)
    if not walls:
        return Tile("step time", "-", "no steps", "step_time")

    def pick(name: str, place: int) -> float:
        found = result.metrics.get(name)
        return found.value if found and found.value is not None else walls[max(place, 0)]

    p50 = pick("step_time", (len(walls) - 1) // 2)
    p95, longest = pick("step_time_p95", -(-95 * len(walls) // 100) - 1), pick("step_time_max", len(walls) - 1)
    note = f"p95 {units.time(p95)} · max {units.time(longest)} · {units.count(len(walls), 'step')}"
    return Tile("step time, median", units.time(p50), note, "step_time", *_judged(result))


def _judged(result: Result) -> tuple[str, str]:
    """The change of the step time and the outcome of the gate, with its tone; empty without a baseline."""
    d = result.against.decision if result.against else None
    if d is None:
        return "", ""
    return f"{units.change_share(d.change)}: {d.outcome}, threshold {d.threshold * 100:.1f} %", TONES[d.outcome]
