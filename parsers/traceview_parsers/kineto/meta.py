"""What stands around the events: base time, rank, groups, devices, versions; and the era of the format."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec

from traceview.run import ABSOLUTE_NS, MOST_RANKS, PartMeta, SourceMeta
from traceview.units import ranks as as_ranges
from traceview_parsers.kineto.events import BAD, MAX_US
from traceview_parsers.kineto.repair import repairs
from traceview_parsers.kineto.stream import EventStream

# Keys that may be copied out; the metadata also holds user names, job names and whatever users added.
_FACTS = (
    "record_shapes",
    "with_stack",
    "profile_memory",
    "with_flops",
    "with_modules",
    "trace_id",
    "cuda_runtime_version",
    "cuda_driver_version",
    "cupti_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "rocprofiler-sdk_version",
)
_HANDLER_NAME = re.compile(r"^(?P<host>.+)_(?P<pid>\d+)[._]\d{13,19}\.pt\.trace\.json(\.gz)?$")
_WORKER = re.compile(r"rank|worker|step|iter", re.I)  # a worker's name was given, so no host is in the file name
_RECORDS = re.compile(r"Out-of-range = (\d+).*CUPTI stopped early\? = (\d)")
_STAMP = re.compile(r"[._](\d{13}|\d{19})\.pt\.trace\.json")
_QUARTER_NS = 7_889_238 * 10**9
_NEAR_NS = 3600 * 10**9


def metadata(stream: EventStream) -> dict[str, Any]:
    """The keys beside ``traceEvents``; damaged text is mended or, failing that, searched for what matters most."""
    head = stream.head.strip().rstrip(b",")
    foot = stream.foot.strip()
    foot = foot[1:] if foot[:1] == b"," else foot
    out: dict[str, Any] = {}
    for text, whole in ((head, head + b"}"), (foot, b"{" + foot)):
        if not text or text in (b"{", b"}"):
            continue
        found = _object(whole if whole.endswith(b"}") else whole + b"}")
        if found is None:
            found = _search(text)
            stream.warnings.append(
                "the metadata is no valid JSON: only base time, rank and world size were searched for"
            )
        out |= found
    return out


def _object(text: bytes) -> dict[str, Any] | None:
    for candidate in itertools.chain([text], repairs(text)):
        try:
            found = msgspec.json.decode(candidate)
        except BAD:
            continue
        return found if isinstance(found, dict) else None
    return None


def _search(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"distributedInfo": {}}
    for key in ("baseTimeNanoseconds", "rank", "world_size"):
        if match := re.search(rb'"%b"\s*:\s*(\d+)' % key.encode(), text):
            target = found if key == "baseTimeNanoseconds" else found["distributedInfo"]
            target[key] = int(match.group(1))
    return found


def _whole(value: Any) -> int | None:
    """A whole number, also as a string or float; None for anything else."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def base_time(meta: dict[str, Any]) -> int:
    """ns to add to every time of the file."""
    base = _whole(meta.get("baseTimeNanoseconds")) or 0
    return base if 0 <= base < MAX_US * 1000 else 0


def lost_base(path: Path, last: int) -> int | None:
    """The base time of a file whose end, where Kineto writes it, is missing; ``last``: ns of its last event.

    Kineto counts from the begin of a quarter of a year. Which one is told by the stamp in the file's name
    or by the file's date, if the last event then lies within an hour of it; else None.
    """
    named = _STAMP.search(path.name)
    stamps = [int(named[1].ljust(19, "0"))] if named else []
    for stamp in (*stamps, path.stat().st_mtime_ns):
        quarter = stamp // _QUARTER_NS * _QUARTER_NS
        for base in (quarter, quarter - _QUARTER_NS):
            if abs(base + last - stamp) < _NEAR_NS:
                return base
    return None


def fill(part: PartMeta, meta: dict[str, Any], path: Path) -> None:
    """Rank, world, groups, host, device and capture facts out of the metadata into ``part``."""
    info = meta.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    part.rank = _whole(info.get("rank"))
    if part.rank is not None:
        part.rank_source = "metadata"
    part.world_size = _whole(info.get("world_size"))
    part.backend = info["backend"] if isinstance(info.get("backend"), str) else None
    part.groups = _groups(info.get("pg_config"))
    source = part.source
    for key in _FACTS:
        if isinstance(meta.get(key), int | float | str):
            source.facts[key] = str(meta[key])
    if isinstance(info.get("nccl_version"), str):
        source.facts["nccl_version"] = info["nccl_version"]
    _host(part, meta, path)
    _devices(part, meta)
    _lost_records(source, meta.get("INFO"))


def _groups(config: Any) -> dict[str, str]:
    """Group name -> members as ranges. ``ranks`` is a list, or text when kineto made it on demand."""
    out: dict[str, str] = {}
    for group in config if isinstance(config, list) else ():
        if not isinstance(group, dict):
            continue
        members = group.get("ranks")
        if isinstance(members, str) and "..." not in members:
            members = [_whole(r) for r in members.strip("[] ").split(",")]
        if isinstance(members, list) and members and all(isinstance(r, int) and 0 <= r < MOST_RANKS for r in members):
            out.setdefault(str(group.get("pg_name", "")), as_ranges(members))
    return out


def _host(part: PartMeta, meta: dict[str, Any], path: Path) -> None:
    if isinstance(meta.get("host_name"), str) and meta["host_name"]:
        part.host = meta["host_name"]
    for name in (path.name, str(meta.get("traceName", "")).rsplit("/", 1)[-1]):
        found = _HANDLER_NAME.match(name)
        if found and not _WORKER.search(found["host"]):
            part.host = part.host or found["host"]
            part.pid = part.pid or int(found["pid"])


def _devices(part: PartMeta, meta: dict[str, Any]) -> None:
    listed = meta.get("deviceProperties")
    devices = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    busiest = part.devices[0] if part.devices else 0
    mine = next((d for d in devices if d.get("id") == busiest), devices[0] if devices else {})
    name = mine.get("name")
    part.device_name = name if isinstance(name, str) and name else None
    part.vendor = _vendor(part.device_name or "", meta) if part.devices or devices else None


def _vendor(name: str, meta: dict[str, Any]) -> str | None:
    if re.search(r"AMD|Instinct|Radeon", name, re.I) or any(k.startswith("hip_") for k in meta):
        return "AMD"
    if re.search(r"NVIDIA|Tesla|GeForce|Quadro|[AHVBLT]\d{2,3}\b|GB\d", name) or any(
        k.startswith("cuda_") for k in meta
    ):
        return "NVIDIA"
    if re.search(r"Intel|Xe|Ponte|Max \d", name):
        return "Intel"
    if re.search(r"MTIA|ARTEMIS", name, re.I):
        return "MTIA"
    return "Ascend" if re.search(r"Ascend|NPU", name, re.I) else None


def _lost_records(source: SourceMeta, lines: Any) -> None:
    """The only sign in the file of GPU records that were not kept."""
    for line in lines if isinstance(lines, list) else ():
        found = _RECORDS.search(line) if isinstance(line, str) else None
        if not found:
            continue
        if int(found.group(1)):
            source.facts["out_of_range_records"] = found.group(1)
            source.warnings.append(f"the profiler left out {found.group(1)} records outside its window")
        if found.group(2) != "0":
            source.warnings.append("CUPTI stopped early: GPU records are missing at the end")


def is_absolute(time: int) -> bool:
    """Whether a ns time can be one since 1970."""
    return time >= ABSOLUTE_NS


def schema_class(meta: dict[str, Any], marks: set[str]) -> str:
    """Era of the format by its features; ``marks``: features seen in the events."""
    if "capitals" in marks:
        return "A"
    if "baseTimeNanoseconds" in meta:
        return "D2" if "host_name" in meta else "D1" if "trace_id" in meta else "D0"
    if "decimals" in marks:
        return "C0"
    if "Ev Idx" in marks:
        return "B3" if "Concrete Inputs" in marks else "B2"
    return "B1" if "Profiler Event Index" in marks else "B0"
