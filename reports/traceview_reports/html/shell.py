"""What every page has: templates that escape, the policy, styles, the script, the definitions it refers to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from traceview import __version__, units
from traceview.errors import TraceviewError
from traceview_reports import definitions
from traceview_reports.html import embed
from traceview_reports.html.blocks import Section
from traceview_reports.html.figures import Lanes, Plot
from traceview_reports.html.palette import asset, stylesheet
from traceview_reports.names import clean

MOST_BYTES = 20_000_000
MARK = b'<meta name="generator" content="traceview">'  # in the first 500 bytes of every page


def environment() -> Environment:
    """Templates of the package: every value is escaped, an unknown one is an error."""
    env = Environment(
        loader=PackageLoader("traceview_reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["slug"] = lambda key: re.sub(r"[^a-z0-9]+", "-", str(key).lower())
    return env


def frame(
    scripts: Sequence[str] = (), allowed: Sequence[str] = (), styles: str = "", data: Markup | None = None
) -> dict[str, Any]:
    """The values of the frame: ``scripts`` after that of every page, ``allowed`` ones that these may add."""
    head, scripts = asset("theme.js"), [asset("page.js"), *scripts]
    return {
        "csp": embed.policy([head, *scripts, *allowed]),
        "styles": Markup(stylesheet() + styles),
        "head_script": Markup(head),
        "scripts": [Markup(s) for s in scripts],
        "data": data or Markup(),
    }


def drawn(env: Environment, *figures: Lanes | Plot) -> Markup:
    """Figures laid out; their shapes are ours, their words are escaped."""
    return Markup(env.get_template("figures.html.j2").render(figures=figures))


def outcome_page(env: Environment, sections: list[Section], tiles: Sequence[dict[str, Any]], **first: Any) -> str:
    """A page of an outcome, lines, tiles and sections, with the definitions that these refer to at its end."""
    keys = {h.key for s in sections for g in s.grids for h in g.head} | {t["define"] for t in tiles}
    sections = [*sections, glossary(env, keys)]
    text = env.get_template("outcome.html.j2").render(
        **frame(styles=asset("figures.css")),
        title=f"traceview: {first['status_word']} {clean(first['headline'], 120)}",
        nav=[s for s in sections if s.nav],
        sections=sections,
        tiles=tiles,
        version=__version__,
        **first,
    )
    if len(text.encode()) > MOST_BYTES:
        raise TraceviewError(f"the page takes {units.size(len(text.encode()))}, more than {units.size(MOST_BYTES)}")
    return text


def glossary(env: Environment, keys: Iterable[str] | None = None) -> Section:
    """All definitions, or those of ``keys``."""
    wanted = None if keys is None else set(keys)
    parts = [
        (heading, [row for row in rows if wanted is None or row[0] in wanted])
        for heading, rows in definitions.glossary()
    ]
    text = env.get_template("glossary.html.j2").render(parts=[(h, rows) for h, rows in parts if rows])
    return Section("glossary", "Glossary", extra=Markup(text), fold=True)
