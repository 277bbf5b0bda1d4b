"""The Markdown report: the same words, and nothing a name says is obeyed."""

import pytest

from builders.results import ALL
from traceview_reports import markdown


def test_it_says_what_the_verdict_says() -> None:
    text = markdown.render(ALL["slow_rank"]())
    assert text.startswith("## Rank 3 on node-000 computes 1.14x slower")
    assert "- **SLOW** 560 ms a step" in text
    assert "| compute | 75.7 % |" in text
    assert "**Rank 3 is 14 % slower than its peers** −58.0 ms a step, proved" in text


@pytest.mark.parametrize("name", ALL)
def test_table_rows_have_the_cells_of_their_head(name: str) -> None:
    for block in markdown.render(ALL[name]()).split("\n\n"):
        rows = [line.replace("\\|", "") for line in block.split("\n") if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1


def test_hostile_names_stay_text() -> None:
    text = markdown.render(ALL["hostile"]())
    assert "<img" not in text and "</script" not in text
    assert "\u2028" not in text and "\x1b" not in text
    assert markdown.escape("![a](http://x) @all `b` <i> a|b") == (
        "!\\[a\\](http://x) @\u200ball \\`b\\` &lt;i&gt; a\\|b"
    )


def test_it_fits_a_comment() -> None:
    assert len(markdown.render(ALL["many"]())) < 60_000
    assert len(markdown.render(ALL["hostile"]())) < 60_000
