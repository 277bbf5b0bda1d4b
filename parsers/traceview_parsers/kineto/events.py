"""One Chrome-trace event as Kineto writes it: its types, its decoders, its times.

Arguments stay undecoded (``Raw``): most events are never asked for them, and a strange argument then spoils
nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

I64Array = np.ndarray[Any, np.dtype[np.int64]]
Number = float | str | None
Ident = int | str | None

# From 2**43 µs on a float64 no longer tells neighbouring nanoseconds apart.
EXACT_BELOW_US = float(2**43)
MISSING = np.iinfo(np.int64).min
# No time or length beyond this (2065) is believed: start, length and base must add up within int64 ns.
MAX_US = 3e15
# What msgspec raises on text it does not take.
BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Event(msgspec.Struct, gc=False):
    """The keys that matter; ``ts`` and ``dur`` are µs."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Ident = None
    tid: Ident = None
    ts: Number = None
    dur: Number = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class WholeEvent(Event, gc=False):
    """The same with ``ts`` in whole µs, for absolute times (schema classes A and B): nothing else passes."""

    ts: int | None = None


class TextEvent(Event, gc=False):
    """The same with ``ts`` as text, for absolute times with decimals (schema class C)."""

    ts: msgspec.Raw = msgspec.Raw(b"null")  # type: ignore[assignment]


Events = list[Event]
FAST = msgspec.json.Decoder(list[Event | None])
WHOLE = msgspec.json.Decoder(list[WholeEvent | None])
EXACT = msgspec.json.Decoder(list[TextEvent | None])


def number(value: Any) -> float:
    """A time as recorded -> float µs; nan for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def text_ns(raw: Any) -> int:
    """JSON text of a µs time -> exact ns; MISSING for what is none.

    >>> text_ns(b"1712195495519695.8"), text_ns(b'"12.3456"')
    (1712195495519695800, 12346)
    """
    text = bytes(raw).strip(b'" \t\r\n')
    whole, _, fraction = text.partition(b".")
    if whole.isdigit() and len(whole) < 17 and len(fraction) <= 3 and (fraction.isdigit() or not fraction):
        ns = int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    else:
        try:
            value = Decimal(text.decode()) * 1000
            ns = int(value.to_integral_value()) if value.adjusted() < 20 else int(MISSING)
        except (ArithmeticError, ValueError):
            return int(MISSING)
    return ns if abs(ns) < MAX_US * 1000 else int(MISSING)


def micros(values: Iterable[Any], count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """float64 µs of ``count`` recorded times."""
    values = list(values)
    try:
        return np.fromiter(values, np.float64, count)
    except (TypeError, ValueError):
        return np.fromiter(map(number, values), np.float64, count)


def to_ns(values: list[Any]) -> I64Array:
    """Recorded times (numbers, strings, None, or JSON text in ``Raw``) -> int64 ns; MISSING for what is none."""
    count = len(values)
    if count and isinstance(values[0], msgspec.Raw):
        return np.fromiter(map(text_ns, values), np.int64, count)
    us = micros(values, count)
    bad = ~(np.abs(us) < MAX_US)
    if bad.any():
        us[bad] = 0.0
    whole = np.floor(us)
    ns: I64Array = whole.astype(np.int64) * 1000
    us -= whole
    if us.any():
        ns += np.rint(us * 1000).astype(np.int64)
    ns[bad] = MISSING
    return ns


def is_beyond_float(events: list[Event | None]) -> bool:
    """Whether these times are so large that a float64 may have lost their decimals."""
    return any(number(e.ts) >= EXACT_BELOW_US for e in events[:16] if e is not None)


def integers(values: list[Any]) -> I64Array:
    """Ids as recorded -> int64; digits at the end of a string count ('stream 7' is 7), anything else is -1."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(_integer, values), np.int64, len(values))


_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _integer(value: Any) -> int:
    if isinstance(value, str):
        digits = value.rsplit(" ", 1)[-1]
        value = int(digits) if _INTEGER.fullmatch(digits) else -1
    if not isinstance(value, int | float) or value != value:
        return -1
    return int(value) if -(2**63) <= value < 2**63 else -1
