"""Values that NCCL attaches to its NVTX ranges, by field name.

A payload is a C struct behind a header of four little-endian u64 (domain, schema, size, offset of the struct). The
report tells the fields of each schema in ``NVTX_PAYLOAD_SCHEMA_ENTRIES``; ids and offsets moved between NCCL
releases, the field names did not. Exports write the bytes as a blob, as hexadecimal text, or as JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from traceview.run import MOST_RANKS
from traceview_parsers.nsight.source import Kind, Source, integer
from traceview_parsers.nsight.source import text as text_of

PAYLOAD = np.dtype(
    [
        ("tid", "i8"),
        ("start", "i8"),
        ("has_comm", "?"),
        ("comm", "u8"),
        ("size", "i8"),
        ("peer", "i8"),
        ("root", "i8"),
        ("nranks", "i8"),
        ("rank", "i8"),
    ]
)
"""One payload: the range's globalTid and start, then the values; -1 = not told."""

FIELDS = {
    "nccl communicator id": "comm",
    "message size [bytes]": "size",
    "peer rank": "peer",
    "root": "root",
    "no. of ranks": "nranks",
    "number of ranks": "nranks",
    "rank": "rank",
}
# NVTX payload entry types: C and fixed-width integers, size_t; others are skipped.
_INTEGERS = ("i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8")
_FORMATS = dict(enumerate((*_INTEGERS, "<i8", "<u8", *_INTEGERS), start=1)) | {22: "<u8", 23: "<u8"}
_HEADER = 32
_MOST_OFFSET = 1 << 20
MOST_BYTES = 1 << 50
"""No message and no copy is larger (a petabyte): such a size is damage."""
_HEX = re.compile(rb"\A(?:0[xX])?(?:[0-9a-fA-F]{2})+\Z")


def read_payloads(source: Source) -> Any:
    """All payloads of a report (``PAYLOAD`` rows), sorted by (tid, start); empty if it was exported without."""
    where = dict.fromkeys(("start", "globalTid"), Kind.INT)
    schemas = _schemas(source)
    found = [np.empty(0, PAYLOAD)]
    for columns in source.batches("NVTX_EVENTS", where | {"binaryData": Kind.HEX}, not_null="binaryData"):
        raw = [_bytes(text) for text in columns["binaryData"].to_pylist()]
        found.append(_decode(raw, schemas, columns["globalTid"], columns["start"]))
    for columns in source.batches("NVTX_EVENTS", where | {"jsonText": Kind.TEXT}, not_null="jsonText"):
        found.append(_from_json(columns["jsonText"].to_pylist(), columns["globalTid"], columns["start"]))
    rows = _possible(np.concatenate(found), source)
    return rows[np.lexsort((rows["start"], rows["tid"]))]


def _possible(rows: Any, source: Source) -> Any:
    """Values that no message and no communicator can have count as not told."""
    for field, most in (("size", MOST_BYTES), ("nranks", MOST_RANKS), ("rank", MOST_RANKS), ("peer", MOST_RANKS)):
        bad = (rows[field] < -1) | (rows[field] > most)
        if bad.any():
            source.odd[f"NVTX_EVENTS.payload.{field}"] += int(bad.sum())
            rows[field][bad] = -1
    rows["root"][rows["root"] > MOST_RANKS] = -1
    strange = (rows["nranks"] >= 0) & (rows["rank"] >= rows["nranks"])
    rows["nranks"][strange] = rows["rank"][strange] = -1
    return rows


def _schemas(source: Source) -> dict[int, dict[str, tuple[str, int]]]:
    """schema id -> field -> (numpy format, offset). Rows repeat once per process: the last one wins."""
    entries: dict[int, dict[int, tuple[int, str, int | None]]] = {}
    wanted = ("schemaId", "idx", "type", "name", "offset")
    for schema, at, kind, name, offset in source.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", wanted):
        own, place = integer(schema), integer(offset)
        if own is not None and (place is None or 0 <= place < _MOST_OFFSET):
            entries.setdefault(own, {})[integer(at) or 0] = integer(kind) or 0, text_of(name), place
    return {schema: _fields([fields[i] for i in sorted(fields)]) for schema, fields in entries.items()}


def _fields(entries: list[tuple[int, str, int | None]]) -> dict[str, tuple[str, int]]:
    told = any(offset for _, _, offset in entries)
    out: dict[str, tuple[str, int]] = {}
    at = 0
    for kind, name, offset in entries:
        form = _FORMATS.get(kind, "<i4")  # an enumeration of a schema of its own is an int
        width = int(form[-1])
        place = (offset or 0) if told else -(-at // width) * width
        at = place + width
        if field := FIELDS.get(name.strip().lower()):
            out[field] = form, place
    return out


def _bytes(text: str) -> bytes:
    """The bytes behind a hexadecimal text; some exports hold the hexadecimal text itself in the column."""
    raw = bytes.fromhex(text)
    if len(raw) >= 2 * _HEADER and _HEX.match(raw):
        return bytes.fromhex(raw.removeprefix(b"0x").removeprefix(b"0X").decode())
    return raw


def blank(rows: int) -> Any:
    """Payload rows that tell nothing."""
    out = np.zeros(rows, PAYLOAD)
    for field in ("size", "peer", "root", "nranks", "rank"):
        out[field] = -1
    return out


def _decode(raw: list[bytes], schemas: dict[int, dict[str, tuple[str, int]]], tid: Any, start: Any) -> Any:
    """Rows of the payloads whose schema is known, decoded schema by schema."""
    out = blank(len(raw))
    out["tid"], out["start"] = tid, start
    heads = np.array([np.frombuffer(r[:_HEADER].ljust(_HEADER, b"\0"), "<u8") for r in raw]).reshape(-1, 4)
    known = np.zeros(len(raw), np.bool_)
    for schema, offset in {(int(h[1]), int(h[3])) for h in heads}:
        fields = schemas.get(schema)
        if not fields:
            continue
        end = max(place + int(form[-1]) for form, place in fields.values())
        rows = np.flatnonzero((heads[:, 1] == schema) & (heads[:, 3] == offset)).tolist()
        rows = [i for i in rows if len(raw[i]) >= offset + end]
        body = b"".join(raw[i][offset : offset + end] for i in rows)
        known[rows] = True
        for field, (form, place) in fields.items():
            out[field][rows] = np.ndarray(len(rows), form, body, place, (end,)) if rows else 0
        out["has_comm"][rows] = "comm" in fields
    return out[known]


def _from_json(texts: Iterable[str], tid: Any, start: Any) -> Any:
    texts = list(texts)
    out = blank(len(texts))
    out["tid"], out["start"] = tid, start
    known = np.zeros(len(texts), np.bool_)
    for at, text in enumerate(texts):
        try:
            values = dict(_walk(msgspec.json.decode(text)))
        except (msgspec.DecodeError, RecursionError):
            continue
        known[at] = bool(values)
        for field, value in values.items():
            out[field][at] = value
        out["has_comm"][at] = "comm" in values
    return out[known]


def _walk(value: Any) -> Iterable[tuple[str, int]]:
    """(field, integer) of every known name in a JSON value, however nested."""
    if isinstance(value, list):
        for item in value:
            yield from _walk(item)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        field = FIELDS.get(str(key).strip().lower())
        number = _integer(item) if field else None
        if field and number is not None:
            yield field, number % 2**64 if field == "comm" else min(number, 2**63 - 1)
        else:
            yield from _walk(item)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**64 else None
