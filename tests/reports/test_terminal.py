"""The terminal report: the verdict first, aligned, never wider than the terminal, safe with hostile names."""

import re

import pytest

from builders.results import ALL
from traceview_reports import terminal


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    for verbose in (False, True):
        text = terminal.render(ALL[name](), width=width, verbose=verbose)
        assert max(map(len, text.split("\n"))) <= width
        assert "\x1b" not in text


def test_the_first_screen_in_its_shape() -> None:
    lines = terminal.render(ALL["slow_rank"](), width=120).split("\n")
    assert [line.split(" ")[0] for line in lines[:9] if line and line[0] != " "] == [
        "SLOW",
        "CAUSE",
        "COST",
        "DO",
        "NOT",
        "NEXT",
        "SEEN",
    ]
    assert lines[0].startswith("SLOW   560 ms a step, 11.5 % over")
    assert any(line.startswith("DO     cordon") and line.endswith("Owner: hardware.") for line in lines)


@pytest.mark.parametrize(
    ("name", "word"), [("healthy", "HEALTHY"), ("one_rank", "CANNOT TELL"), ("cpu_only", "CANNOT TELL")]
)
def test_the_other_verdicts(name: str, word: str) -> None:
    text = terminal.render(ALL[name](), width=100)
    assert text.startswith(word)
    assert "COST" not in text.split("Where the time goes")[0], "what is unknown is left out"


def test_numbers_are_never_cut() -> None:
    text = terminal.render(ALL["everything_wrong"](), width=80, verbose=True)
    table = text.split("Ranks ")[1].split("\n\n")[0]
    assert "…" not in table
    assert "5.63 s" in table and "84.7" in table


def test_columns_without_a_value_give_way_first() -> None:
    heads = {
        w: terminal.render(ALL["many"](), width=w).split("\nSteps ")[1].split("\n")[1].split() for w in (80, 120)
    }
    assert "slowest" in heads[120] and "slow" in heads[120], "nobody is slowest, one step is slow"
    assert "slowest" not in heads[80] and "slow" in heads[80]


def test_many_ranks_stay_short() -> None:
    text = terminal.render(ALL["many"](), width=80)
    assert text.count("\n") < 90
    assert "and 504 more" in text
    assert re.search(r"^ +331  node-041", text, re.MULTILINE), "the latest rank is among those shown"


def test_colour_only_adds_escapes() -> None:
    result = ALL["slow_rank"]()
    plain = terminal.render(result, width=90)
    colour = terminal.render(result, width=90, color=True)
    assert "\x1b[" in colour
    assert re.sub(r"\x1b\[[0-9;]*m", "", colour) == plain


def test_hostile_names_stay_text() -> None:
    text = terminal.render(ALL["hostile"](), width=100, color=True, verbose=True)
    assert not re.findall(r"\x1b\[31m", text), "a colour that comes from a name"
    assert "[red]" in text, "markup is shown, not obeyed"
    assert "\u2028" not in text


def test_losses_and_assumptions_are_said() -> None:
    text = terminal.render(ALL["everything_wrong"](), width=100, verbose=True)
    for said in (
        "4 of 16 ranks missing: 8-10,15",
        "records lost: 41",
        "files cut short, their counts are floors: rank 2",
        "step 0 left out: first recorded step",
        "no class for my_company::secret_kernel<int> (40.0 ms)",
        "two files claim rank 5",
        "assumed: NIC speed unknown",
    ):
        assert said in text


def test_long_group_names_give_way_before_kinds() -> None:
    result = ALL["slow_rank"]()
    row = result.collective_rows[0]
    row.group, row.kind = "0x54a0d357e9da926", "reduce_scatter"
    assert "reduce_scatter" in terminal.render(result, width=80)


def test_evidence_is_a_whole_sentence() -> None:
    """Long evidence keeps its middle: 'so clocks, heat or power' was cut out."""
    result = ALL["slow_rank"]()
    told = "the same kernels take 1.35x as long, " + "all of them, " * 25 + "so clocks, heat or power"
    result.findings[0].evidence.append(told)
    shown = " ".join(terminal.render(result, width=100, verbose=True).split())
    assert told in shown


def test_waiting_that_nobody_knows_is_not_zero() -> None:
    """Members without a trace: the time may be waiting or transfer."""
    result = ALL["slow_rank"]()
    for row in result.collective_rows:
        row.matched, row.wait_ns = 0, 0
    text = terminal.render(result, width=160)
    cells = [line for line in text.split("Collectives")[1].split("\n\n")[0].splitlines()[2:] if line]
    at = text.split("Collectives")[1].splitlines()[1].index("wait")
    assert cells and all(line[at : at + 4].strip() == "-" for line in cells)
