"""Numbers for people: time from nanoseconds, bytes in decimal units, shares."""

from __future__ import annotations

from collections.abc import Sequence

TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))


def _digits(value: float) -> str:
    """Three significant digits, no exponent: 1234 -> '1,234', 99.96 -> '100', 12.34 -> '12.3', 1.234 -> '1.23'."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def time(ns: float | None) -> str:
    """Nanoseconds as the unit a person would pick.

    >>> time(24_100_000_000), time(999_960), time(1_234), time(0), time(None)
    ('24.1 s', '1.00 ms', '1.23 µs', '0', '-')
    """
    if ns is None:
        return "-"
    if ns == 0:
        return "0"
    scale, unit = _unit(ns, TIME)
    return f"{_digits(ns / scale)} {unit}"


def _unit(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which there is one at least, after rounding: 999.96 µs are a millisecond."""
    return next(((s, u) for s, u in units if abs(value) >= 0.9995 * s), units[-1])


def gpu_seconds(ns: int) -> str:
    """GPU time as a plain number of seconds, for columns that say the unit in their head.

    >>> gpu_seconds(4_060_000_000), gpu_seconds(250_300_000), gpu_seconds(12_000), gpu_seconds(0)
    ('4.06', '0.250', '<0.001', '0')
    """
    if 0 < ns < 1_000_000:
        return "<0.001"
    return "0" if ns == 0 else _digits(ns / 1e9) if ns >= 1_000_000_000 else f"{ns / 1e9:.3f}"


def change(ns: float) -> str:
    """A difference of times with its sign.

    >>> change(1_500_000), change(-20), change(0)
    ('+1.50 ms', '−20.0 ns', '0')
    """
    return f"{'+' if ns > 0 else '−' if ns < 0 else ''}{time(abs(ns))}"


def size(count: float | None) -> str:
    """Bytes in decimal units.

    >>> size(1_500_000), size(0), size(None)
    ('1.50 MB', '0 B', '-')
    """
    if count is None:
        return "-"
    scale, unit = _unit(count, _BYTES)
    return f"{count:.0f} B" if unit == "B" else f"{_digits(count / scale)} {unit}"


def short(value: float) -> str:
    """A large number, short, to four digits.

    >>> short(7e9), short(16_000), short(0.7e9), short(12)
    ('7B', '16k', '700M', '12')
    """
    scale, unit = next(((s, u) for s, u in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")) if value >= s), (1, ""))
    return f"{value / scale:.4g}{unit}"


def flops(per_second: float | None) -> str:
    """A rate of arithmetic.

    >>> flops(989e12), flops(62.5e12), flops(None)
    ('989 TFLOP/s', '62.5 TFLOP/s', '-')
    """
    return "-" if per_second is None else f"{_digits(per_second / 1e12)} TFLOP/s"


def change_share(fraction: float) -> str:
    """A relative change as a percentage with its sign.

    >>> change_share(0.125), change_share(-0.0301)
    ('+12.5 %', '−3.0 %')
    """
    return f"{fraction * 100:+.1f} %".replace("-", "−")


def share(fraction: float | None) -> str:
    """A fraction as a percentage with one decimal.

    >>> share(0.3141), share(None)
    ('31.4 %', '-')
    """
    return "-" if fraction is None else f"{fraction * 100:.1f} %"


def count(n: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "run"), count(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def ranks(ids: list[int]) -> str:
    """Rank numbers as ranges.

    >>> ranks([0, 1, 2, 3, 7, 9, 8]), ranks([])
    ('0-3,7-9', '')
    """
    out: list[str] = []
    ordered = sorted(set(ids))
    start = 0
    for i, r in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != r + 1:
            first = ordered[start]
            out.append(str(r) if first == r else f"{first}-{r}")
            start = i + 1
    return ",".join(out)


def told_host(host: str) -> str:
    """A host as the files name it, nothing for the stand-in of one that they do not name.

    >>> told_host("node-2"), told_host("?rank0")
    ('node-2', '')
    """
    return "" if host.startswith("?") else host


def named_ranks(ids: list[int]) -> str:
    """The same with the noun.

    >>> named_ranks([3]), named_ranks([0, 1])
    ('rank 3', 'ranks 0-1')
    """
    return f"rank{'s' * (len(set(ids)) != 1)} {ranks(ids)}"


def ranks_are(ids: list[int]) -> str:
    """Their verb too.

    >>> ranks_are([3]), ranks_are([0, 1])
    ('rank 3 is', 'ranks 0-1 are')
    """
    return f"{named_ranks(ids)} {'is' if len(set(ids)) == 1 else 'are'}"


def one_line(text: object) -> str:
    """Text that may hold names from files, fit for a terminal: no line break, no escape sequence.

    >>> one_line("a\\x1b[31mb\\nc")
    'a�[31mb�c'
    """
    return "".join(c if c.isprintable() else "�" for c in str(text))
