"""The charts: HoloViews elements turned into Bokeh documents, one JSON each. Nothing here draws on the first screen.

Kept in mind: trace text never goes into a title, label or group (they are format strings); WebGL stays off; a heat
map is one image; every colour is a light-theme colour of ``page.css`` that the page swaps with the theme.
The drawing libraries are imported on the first call only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from traceview.analysis import peaks
from traceview.result import CollectiveRow, Result, Window, group_ns
from traceview.schema import COLL_KINDS
from traceview_reports.html.blocks import Chart
from traceview_reports.html.palette import colours
from traceview_reports.names import clean
from traceview_reports.tables import GROUP_KEYS
from traceview_reports.views import DIRECTIONS

_MS = 1e-6
_MAX_STEPS = 500
_KIND_COLOURS = ("--g-compute", "--g-comm", "--g-staging", "--g-pipeline", "--g-straggler", "--g-idle")


@dataclass(frozen=True)
class Drawn:
    """A chart with its Bokeh document (``bokeh.embed.json_item``). ``ramp`` names the colour of a heat map."""

    chart: Chart
    item: Any
    ramp: str = ""


def draw(result: Result) -> list[Drawn]:
    """Every chart that the result has data for, in the order of the page."""
    return [chart for build in (_steps, _heat_maps, _arrivals, _busbw, _phases, _copies) for chart in build(result)]


@cache
def _holoviews() -> Any:
    """HoloViews with its Bokeh backend, without what ``hv.extension`` loads for notebooks."""
    import holoviews as hv
    import holoviews.plotting.bokeh

    hv.Store.set_current_backend("bokeh")
    hv.renderer("bokeh").webgl = False
    return hv


def _item(element: Any, chart: Chart, hook: Callable[[Any], None] | None = None) -> Any:
    from bokeh.embed import json_item

    hv = _holoviews()
    figure = hv.render(element, backend="bokeh")
    figure.output_backend = "canvas"
    figure.min_width = 260
    figure.height = chart.height
    figure.sizing_mode = "stretch_width"
    figure.background_fill_color = figure.border_fill_color = figure.outline_line_color = None
    figure.toolbar.logo = None
    figure.toolbar.autohide = True
    figure.grid.grid_line_alpha = 0.5
    for axis in figure.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_line_color = axis.minor_tick_line_color = None
    if hook:
        hook(figure)
    _markers(figure)
    return json_item(figure)


def _markers(figure: Any) -> None:
    """An axis of steps or ranks has whole numbers, and a hidden line that the page puts on what is selected."""
    from bokeh.models import Span

    for axis, dimension in ((figure.xaxis[0], "height"), (figure.yaxis[0], "width")):
        if axis.axis_label in ("step", "rank"):
            axis.ticker.min_interval = 1
            line = {"dimension": dimension, "line_width": 1.5, "line_dash": "dotted", "visible": False}
            figure.add_layout(Span(name=f"select-{axis.axis_label}", location=0, **line))


def _options(**more: Any) -> dict[str, Any]:
    fonts = {"labels": "12px", "xticks": "11px", "yticks": "11px", "legend": "11px"}
    return {
        "responsive": True,
        "toolbar": "above",
        "fontsize": fonts,
        "default_tools": ["pan", "box_zoom", "reset"],
    } | more


def _boxes(rows: list[tuple[Any, ...]], columns: list[str], tips: list[tuple[str, str]], **more: Any) -> Any:
    """Filled boxes: rows are (x0, y0, x1, y1, colour, ...); hover shows ``tips``."""
    import pandas as pd
    from bokeh.models import HoverTool

    frame = pd.DataFrame(rows, columns=["x0", "y0", "x1", "y1", "colour", *columns])
    boxes = _holoviews().Rectangles(frame, ["x0", "y0", "x1", "y1"], ["colour", *columns])
    hover = HoverTool(tooltips=tips)
    return boxes.opts(color="colour", line_width=0, tools=[hover], **_options(**more))


def _steps(result: Result) -> Iterator[Drawn]:
    rows = result.step_rows[:_MAX_STEPS]
    if len(rows) < 2:
        return
    ranks, light = max(len(result.run.ranks), 1), colours()
    boxes: list[tuple[Any, ...]] = []
    for row in rows:
        top = 0.0
        for group, ns in group_ns(row.leaves_ns, row.sub_ns).items():
            if ns:
                height = ns / ranks * _MS
                colour = light[f"--g-{GROUP_KEYS[group][0]}"]
                boxes.append((row.step - 0.44, top, row.step + 0.44, top + height, colour, row.step, group, height))
                top += height
    note = "" if len(result.step_rows) <= _MAX_STEPS else f" (the first {_MAX_STEPS} steps)"
    chart = Chart(
        "steps", f"Step time by cause{note}, mean over ranks", "Stacked bars: time of each step by group", 262
    )
    tips = [("step", "@step"), ("", "@group"), ("ms", "@ms{0.00}")]
    element = _boxes(boxes, ["step", "group", "ms"], tips, xlabel="step", ylabel="ms", ylim=(0, None))
    yield Drawn(chart, _item(element, chart))


_HEATS: tuple[tuple[str, str, str, Callable[[Window], int | None]], ...] = (
    ("compute", "Compute time", "compute", lambda w: group_ns(w.leaves_ns, w.sub_ns)["compute"]),
    ("wait", "Waiting for late ranks", "straggler", lambda w: w.sub_ns.get("comm_wait.nxn", 0)),
    ("late", "Lateness", "comm", lambda w: w.late_ns),
)
_MAX_ROWS = 1_000  # rows of a heat map: each keeps a pixel of its own


def _heat_maps(result: Result) -> Iterator[Drawn]:
    windows = result.window_rows
    if not windows:
        return
    steps, ranks = (sorted({getattr(w, k) for w in windows}) for k in ("step", "rank"))
    if len(ranks) < 2 or steps[-1] - steps[0] > 4_000 or ranks[-1] - ranks[0] > 100_000:
        return
    for key, title, ramp, value in _HEATS:
        cells = np.full((ranks[-1] - ranks[0] + 1, steps[-1] - steps[0] + 1), np.nan, np.float32)
        for w in windows:
            ns = value(w)
            if ns is not None:
                cells[w.rank - ranks[0], w.step - steps[0]] = ns * _MS
        if not np.nanmax(cells, initial=0) > 0:
            continue
        cells, fold = _fold(cells)
        caption = f"{title}, rank × step, ms" + (f" (largest of {fold} ranks)" if fold > 1 else "")
        height = max(300, len(cells) + 110)
        chart = Chart(f"heat-{key}", caption, f"Heat map: {title.lower()} of every rank and step", height)
        span = (ranks[0], ranks[0] + len(cells) * fold)
        yield Drawn(chart, _image(cells, steps[0], span, "step", chart), ramp)


def _fold(cells: Any) -> tuple[Any, int]:
    """At most ``_MAX_ROWS`` rows, each the largest of ``fold`` ranks: no rank may vanish between two pixels."""
    fold = -(-len(cells) // _MAX_ROWS)
    if fold == 1:
        return cells, 1
    rows = -(-len(cells) // fold)
    padded = np.full((rows * fold, cells.shape[1]), np.nan, np.float32)
    padded[: len(cells)] = cells
    return np.fmax.reduce(padded.reshape(rows, fold, -1), axis=1), fold


def _image(
    cells: Any, x0: int, y: tuple[int, int], x_label: str, chart: Chart, hook: Callable[[Any], None] | None = None
) -> Any:
    """One image; row 0 of ``cells`` is the lowest, ``y`` = (first, one after last) of the rows."""
    hv = _holoviews()
    bounds = (x0 - 0.5, y[0] - 0.5, x0 + cells.shape[1] - 0.5, y[1] - 0.5)
    image = hv.Image(cells[::-1], bounds=bounds, kdims=[x_label, "row"], vdims=["ms"], rtol=1)
    low, high = float(np.nanmin(cells)), float(np.nanmax(cells))
    if low >= high:
        low, high = 0.0, high or 1.0
    look = {"colorbar": True, "clim": (low, high), "tools": ["hover"], "xlabel": x_label, "ylabel": "rank"}
    return _item(image.opts(**look, **_options()), chart, hook)


def _arrivals(result: Result) -> Iterator[Drawn]:
    rows = result.arrivals
    classes = list(dict.fromkeys((r.group, r.kind) for r in rows))[:40]
    if len({r.rank for r in rows}) < 2:
        return
    first, last = min(r.rank for r in rows), max(r.rank for r in rows)
    if last - first > 20_000:
        return
    cells = np.full((len(classes), last - first + 1), np.nan, np.float32)
    for r in rows:
        if (r.group, r.kind) in classes:
            cells[classes.index((r.group, r.kind)), r.rank - first] = r.mean_late_ns * _MS
    if not np.nanmax(cells, initial=0) > 0:
        return
    labels = {i: _label(f"{kind} {group}") for i, (group, kind) in enumerate(classes)}

    height = max(140, min(90 + 26 * len(classes), 700))
    label = "Matrix: mean lateness per class of collectives and rank"
    chart = Chart("arrivals", "Mean lateness at the collectives, ms", label, height)
    yield Drawn(
        chart, _image(cells, first, (0, len(classes)), "rank", chart, lambda f: _named_rows(f, labels)), "comm"
    )


def _busbw(result: Result) -> Iterator[Drawn]:
    rows = [r for r in result.collective_rows if r.busbw and r.bytes]
    if not rows:
        return
    import pandas as pd
    from bokeh.models import HoverTool

    hv, light = _holoviews(), colours()
    bounds = sorted({r.peak for r in rows if r.peak})[-4:]
    top = 1.08 * max([r.busbw or 0 for r in rows] + bounds)
    sizes = [math.log10((r.bytes or 1) / 1e6) for r in rows]  # whole decades: their ticks read well
    low, high = 10 ** math.floor(min(sizes) - 0.05), 10 ** math.ceil(max(sizes) + 0.05)
    tips = [("", "@kind @group"), ("busbw GB/s", "@busbw{0.0}"), ("size MB", "@MB{0.00}"), ("n", "@n")]
    parts = []
    for i, kind in enumerate(sorted({r.kind for r in rows})):
        frame = pd.DataFrame([_point(r) for r in rows if r.kind == kind])
        colour = light[_KIND_COLOURS[i % len(_KIND_COLOURS)]]
        name = kind if kind in COLL_KINDS else "other"  # labels are format strings: only declared names
        points = hv.Points(frame, ["MB", "busbw"], ["kind", "group", "n"], label=name)
        look = {"color": colour, "size": 8, "alpha": 0.85, "line_color": None}
        parts.append(points.opts(tools=[HoverTool(tooltips=tips)], **look))
    for peak in bounds:
        line = hv.Curve([(low, peak), (high, peak)], "MB", "busbw")
        parts.append(line.opts(color=light["--dim"], line_dash="dashed", line_width=1.5))
    view = {"logx": True, "xlim": (low, high), "ylim": (0, top), "legend_position": "top_left"}
    element = hv.Overlay(parts).opts(title="", xlabel="message size, MB", ylabel="busbw GB/s", **view, **_options())
    chart = Chart(
        "busbw",
        "Bus bandwidth by size; dashed: bound",
        "Scatter: bus bandwidth of each class against its message size",
    )
    yield Drawn(chart, _item(element, chart))


def _point(row: CollectiveRow) -> dict[str, Any]:
    return {
        "busbw": row.busbw,
        "MB": (row.bytes or 0) / 1e6,
        "kind": row.kind,
        "group": clean(row.group, 60),
        "n": row.n,
    }


def _phases(result: Result) -> Iterator[Drawn]:
    rows = sorted(result.collective_rows, key=lambda r: -(r.wait_ns + r.transfer_ns))[:12]
    rows = [r for r in rows if r.wait_ns + r.transfer_ns]
    if not rows:
        return
    longest = max(r.wait_ns + r.transfer_ns for r in rows)
    unit, scale = ("s", 1e-9) if longest >= 10_000_000_000 else ("ms", _MS)
    light = colours()
    boxes: list[tuple[Any, ...]] = []
    for i, r in enumerate(reversed(rows)):
        wait, transfer = r.wait_ns * scale, r.transfer_ns * scale
        name = _label(f"{r.kind} {r.size_class} {r.group}")
        boxes.append((0, i - 0.36, wait, i + 0.36, light["--g-straggler"], name, "wait", wait))
        boxes.append((wait, i - 0.36, wait + transfer, i + 0.36, light["--g-comm"], name, "transfer", transfer))
    labels = {i: _label(f"{r.kind} {r.size_class}") for i, r in enumerate(reversed(rows))}

    chart = Chart(
        "phases",
        f"Time in collectives, sum over members, {unit}",
        "Bars: time waiting and time in transfer of each class of collectives",
        max(150, 90 + 24 * len(rows)),
        (("waiting", "straggler"), ("transfer", "comm")),
    )
    tips = [("", "@name"), ("", "@phase"), (unit, "@time{0.00}")]
    element = _boxes(boxes, ["name", "phase", "time"], tips, xlabel=unit, ylabel="", xlim=(0, None))
    yield Drawn(chart, _item(element, chart, lambda f: _named_rows(f, labels)))


def _copies(result: Result) -> Iterator[Drawn]:
    rows = sorted((r for r in result.copies if r.rate and r.direction.startswith("pcie")), key=lambda r: -r.bytes)[
        :10
    ]
    if not rows:
        return
    light, top = colours(), 1.5 * max(r.rate or 0 for r in rows)
    boxes: list[tuple[Any, ...]] = []
    labels = {}
    for i, r in enumerate(reversed(rows)):
        labels[i] = name = _label(f"{DIRECTIONS.get(r.direction, r.direction)} {r.mem}")
        boxes.append((0, i - 0.36, r.rate, i + 0.36, light["--g-staging"], name, r.rate, r.rate_n))
    bounds = {g: p.spec_gbs for g, p in peaks.load().pcie.items() if p.spec_gbs <= max(top, 32)}

    def hook(figure: Any) -> None:
        from bokeh.models import Label, Span

        _named_rows(figure, labels)
        for generation, rate in bounds.items():
            figure.add_layout(Span(location=rate, dimension="height", line_dash="dashed", line_color=light["--dim"]))
            name = Label(x=rate, y=len(rows) - 0.5, text=f"Gen{generation} x16", text_font_size="11px", x_offset=3)
            name.text_color = light["--dim"]
            figure.add_layout(name)

    label = "Bars: rate of copies of at least 1 MB by direction and memory; lines: PCIe x16 generations"
    chart = Chart("copies", "Rate of large copies; dashed: PCIe x16", label, max(150, 110 + 24 * len(rows)))
    tips = [("", "@name"), ("GB/s", "@rate{0.0}"), ("copies", "@n")]
    view = {"xlim": (0, max([top, *(1.25 * b for b in bounds.values())])), "ylim": (-0.5, len(rows) + 0.1)}
    yield Drawn(
        chart, _item(_boxes(boxes, ["name", "rate", "n"], tips, xlabel="GB/s", ylabel="", **view), chart, hook)
    )


def _named_rows(figure: Any, labels: dict[int, str]) -> None:
    """Names instead of numbers on the y axis."""
    figure.yaxis.ticker = list(labels)
    figure.yaxis.major_label_overrides = labels
    figure.yaxis.axis_label = ""
    figure.ygrid.visible = False


def _label(text: str) -> str:
    """Short text that an axis shows as it is: no math delimiters."""
    return clean(text, 34).replace("\\", "").replace("$", "")
