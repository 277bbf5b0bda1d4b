"""Bytes -> events: layouts, cuts, damage, gzip. Nothing intact may be lost, whatever stands around it."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traceview.errors import TraceviewError
from traceview_parsers.kineto.events import EXACT_BELOW_US, MISSING, text_ns, to_ns
from traceview_parsers.kineto.meta import metadata
from traceview_parsers.kineto.repair import repairs
from traceview_parsers.kineto.stream import EventStream

HOSTILE = st.text(st.sampled_from('},{][":\\ \n\té€aX0') | st.characters(codec="utf-8"), max_size=12)
ARGS = st.recursive(
    st.none() | st.integers(0, 99) | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE, inner, max_size=3),
    max_leaves=6,
)
EVENT = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.just("cpu_op"),
        "name": HOSTILE,
        "ts": st.integers(0, 10**6),
        "dur": st.integers(0, 9),
    },
    optional={"args": st.dictionaries(HOSTILE, ARGS, max_size=3), "tid": HOSTILE | st.integers(0, 9)},
)
LAYOUTS = [
    {"separators": (",", ":")},
    {"indent": 2},
    {},
    {"ensure_ascii": False, "separators": (" , ", " : ")},
]


def load(tmp_path: Path, data: bytes, block: int = 1 << 20) -> tuple[list[Any], EventStream]:
    path = tmp_path / "t"
    path.write_bytes(data)
    stream = EventStream(path, block=block)
    return [e for chunk in stream for e in chunk], stream


def key(event: Any) -> tuple[Any, ...]:
    if isinstance(event, dict):
        return event["name"], event["ts"], event["dur"], event.get("tid"), event.get("args", {})
    return event.name, event.ts, event.dur, event.tid, json.loads(bytes(event.args))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(EVENT, max_size=12),
    layout=st.sampled_from(LAYOUTS),
    block=st.integers(20, 400),
    meta_after=st.booleans(),
    bare=st.booleans(),
    packed=st.booleans(),
)
def test_every_layout_and_every_cut(
    tmp_path: Path, events: list[Any], layout: Any, block: int, meta_after: bool, bare: bool, packed: bool
) -> None:
    around = {"distributedInfo": {"pg_config": [{"ranks": [0, 1]}, {"ranks": [2]}]}, "traceName": "a]}, {b"}
    whole = {"schemaVersion": 1, "traceEvents": events, **around} if meta_after else {**around, "traceEvents": events}
    data = json.dumps(events if bare else whole, **layout).encode("utf-8", "surrogatepass")
    got, stream = load(tmp_path, gzip.compress(data) if packed else data, block)
    assert [key(e) for e in got] == [key(e) for e in events]
    assert (stream.repaired, stream.quarantined, stream.truncated, stream.warnings) == (0, 0, False, [])
    if not bare:
        assert metadata(stream) == {k: v for k, v in whole.items() if k != "traceEvents"}


GOOD = [
    {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "ts": i, "dur": 1, "args": {"x": [{"a": 1}, {"b": 2}]}}
    for i in range(40)
]
DAMAGE = {
    "nan": (b'{"ph":"X","name":"m","ts":1,"dur":2,"args":{"bw": -inf, "q": NaN}}', "m"),
    "windows path": (rb'{"ph":"X","name":"C:\Users\me\x.py","ts":1,"dur":2}', "C:\\Users\\me\\x.py"),
    "control": (b'{"ph":"X","name":"a\x01b\nc","ts":1,"dur":2}', "a\x01b\nc"),
    "quote": (b'{"ph":"X","name":"L("x", "IMPL")","ts":1,"dur":2}', 'L("x", "IMPL")'),
    "not utf-8": (b'{"ph":"X","name":"a\xffb","ts":1,"dur":2}', "a�b"),
    "lone surrogate": (b'{"ph":"X","name":"a\\ud800b","ts":1,"dur":2}', "a�b"),
    "open key": (b'{"ph":"X","name":"m", tid": 0,"ts":1,"dur":2}', "m"),
    "last comma": (b'{"ph":"X","name":"m","ts":1,"dur":2,}', "m"),
}


@pytest.mark.parametrize("block", [64, 300, 1 << 20])
@pytest.mark.parametrize("fault", DAMAGE)
def test_damage_is_mended_and_counted(tmp_path: Path, fault: str, block: int) -> None:
    bad, name = DAMAGE[fault]
    texts = [json.dumps(e).encode() for e in GOOD]
    texts.insert(17, bad)
    got, stream = load(tmp_path, b'{"traceEvents": [' + b", ".join(texts) + b'], "rank": 3}', block)
    assert [e.name for e in got] == [*(f"op{i}" for i in range(17)), name, *(f"op{i}" for i in range(17, 40))]
    assert (stream.repaired, stream.quarantined, stream.truncated) == (1, 0, False)
    assert metadata(stream) == {"rank": 3}


@pytest.mark.parametrize("block", [64, 300, 1 << 20])
@pytest.mark.parametrize("at", [0, 17, 40])
def test_what_cannot_be_mended_is_left_out_with_its_place(tmp_path: Path, at: int, block: int) -> None:
    bad = b'{"ph":"X","name":<b>,"ts":1'
    texts = [json.dumps(e).encode() for e in GOOD]
    texts.insert(at, bad + b"}")
    data = b'{"a": 1, "traceEvents": [' + b", ".join(texts) + b'], "rank": 3}'
    got, stream = load(tmp_path, data, block)
    assert [e.name for e in got] == [f"op{i}" for i in range(40)]
    assert (stream.repaired, stream.quarantined, stream.truncated) == (0, 1, False)
    (loss,) = stream.losses
    assert data[loss.offset : loss.offset + loss.length].startswith(bad)
    assert "malformed" in loss.reason
    assert metadata(stream) == {"a": 1, "rank": 3}


@pytest.mark.parametrize("packed", [False, True])
def test_truncation_keeps_what_is_whole(tmp_path: Path, packed: bool) -> None:
    data = json.dumps({"traceEvents": GOOD}).encode()
    if packed:
        data = gzip.compress(data)[:-12]
    else:
        data = data[: data.index(b'"op30"')]
    got, stream = load(tmp_path, data)
    names = [e.name for e in got]
    assert names == [f"op{i}" for i in range(len(names))] and len(names) >= 30
    assert stream.truncated and stream.warnings


def test_wrong_checksum_loses_nothing(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(json.dumps(GOOD).encode()))
    data[-6] ^= 1
    got, stream = load(tmp_path, bytes(data))
    assert len(got) == 40 and not stream.truncated
    assert stream.warnings == ["the gzip checksum is missing or differs"]


def test_several_gzip_members_and_their_header_fields(tmp_path: Path) -> None:
    text = json.dumps(GOOD).encode()
    named = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\x00xy" + b"name\0" + b"comment\0" + b"\0\0"
    member = named + gzip.compress(text[100:])[10:]
    got, stream = load(tmp_path, gzip.compress(text[:100]) + member + bytes(512))
    assert len(got) == 40 and not stream.warnings


@pytest.mark.parametrize("data", [b"", b"{}", b'{"schemaVersion": 1}', b"\x1f\x8b\x08nothing"])
def test_no_events(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TraceviewError, match="no traceEvents inside"):
        load(tmp_path, data)


def test_damaged_metadata_still_tells_what_matters(tmp_path: Path) -> None:
    data = b'{"distributedInfo": {"rank": 5, "world_size": 8}, "x": <>, "baseTimeNanoseconds": 17, "traceEvents": []}'
    _, stream = load(tmp_path, data)
    assert metadata(stream) == {"distributedInfo": {"rank": 5, "world_size": 8}, "baseTimeNanoseconds": 17}
    assert "no valid JSON" in stream.warnings[0]


@pytest.mark.parametrize("quote", ["", '"'])
def test_absolute_times_with_decimals_are_exact(tmp_path: Path, quote: str) -> None:
    texts = [
        f'{{"ph":"X","cat":"cpu_op","ts":{quote}171219549551{i:04d}.{i % 1000:03d}{quote},"dur":1.5}}'
        for i in range(500)
    ]
    got, _ = load(tmp_path, ("[" + ",".join(texts) + "]").encode(), 2000)
    assert to_ns([e.ts for e in got]).tolist() == [171219549551_0000_000 + i * 1000 + i % 1000 for i in range(500)]


@pytest.mark.parametrize(
    "told", ["1e300", "-1e300", "1" + "0" * 5000, "9.3e15", "9300000000000000.1", "NaN", "inf", "today", '"', ""]
)
def test_what_no_time_can_be_is_missing(told: str) -> None:
    assert text_ns(told.encode()) == MISSING
    assert to_ns([told, 1.5]).tolist() == [MISSING, 1500]


@given(ns=st.integers(0, int(EXACT_BELOW_US) * 1000 - 1))
def test_relative_times_are_exact_in_float(ns: int) -> None:
    text = f"{ns // 1000}.{ns % 1000:03d}"
    assert to_ns([float(text)]).tolist() == [ns] == [text_ns(text.encode())]


def test_deep_nesting_costs_one_event(tmp_path: Path) -> None:
    deep = b'{"ph":"X","name":"deep","args":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    texts = [json.dumps(e).encode() for e in GOOD]
    got, stream = load(tmp_path, b"[" + b",".join([*texts[:5], deep, *texts[5:]]) + b"]")
    assert len(got) == 40 and stream.quarantined == 1
    assert "recursion" in stream.losses[0].reason


@pytest.mark.parametrize(
    "text", ["1e999999999", "-1e300", "99999999999999999999999", "1e18", "nan", "null", '"x"', "[]"]
)
def test_times_beyond_belief_are_missing(text: str) -> None:
    assert text_ns(text.encode()) == MISSING
    with contextlib.suppress(ValueError):  # an integer of any size is a number to Python
        assert to_ns([json.loads(text.replace("nan", "NaN"))]).tolist() == [MISSING]


@given(st.dictionaries(HOSTILE, ARGS))
def test_mending_does_not_change_valid_json(value: Any) -> None:
    assert json.loads(next(repairs(json.dumps(value).encode()))) == value


def test_progress_ends_at_the_size(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(json.dumps(GOOD).encode())
    seen: list[tuple[int, int]] = []
    list(EventStream(path, lambda *step: seen.append(step), block=500))
    assert seen == sorted(seen) and seen[-1] == (path.stat().st_size,) * 2
