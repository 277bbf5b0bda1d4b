"""Topology files of NCCL (NCCL_TOPO_DUMP_FILE, format ``nccl_topo``): NVLink for certain, widths, NIC speeds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pyarrow as pa

from traceview.errors import TraceviewError
from traceview.run import Part, PartMeta, SourceMeta, write_part
from traceview.schema.nccl import NCCL_LINKS
from traceview_parsers.reader import Progress, ReadOptions

name = "nccl_topo"
version = 1
is_log = True

_LIMIT = 64 << 20
_HEAD = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>)?\s*(?:<!--.*?-->\s*)*<system[ >]", re.S)
_BRIDGE = "0x0604"
_SPEED = re.compile(r"([\d.]+) ?GT/s")


def sniff(head: bytes, path: Path) -> bool:
    """An XML document whose root is ``system``."""
    return _HEAD.match(head) is not None and b"<cpu" in head


def read(path: Path, out: Path, options: ReadOptions, progress: Progress | None) -> list[Part]:
    """Read a topology file into one part with the table nccl_links; TraceviewError if it is none."""
    data = path.read_bytes()
    if len(data) > _LIMIT or b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise TraceviewError(f"{path}: not a topology file of NCCL (too large, or with a document type)")
    try:
        root = xml.fromstring(data)
    except xml.ParseError as error:
        raise TraceviewError(f"{path}: not well-formed XML ({error}); dump the topology again") from error
    rows: list[dict[str, Any]] = []
    for cpu in root.iter("cpu"):
        _walk(cpu, _Place(numa=_number(cpu, "numaid")), rows)
    if not rows:
        raise TraceviewError(f"{path}: no GPU and no NIC in it; dump the topology with NCCL_TOPO_DUMP_FILE")
    if progress is not None:
        progress(len(data), len(data))
    table = pa.Table.from_pylist(rows, schema=NCCL_LINKS.arrow(stored=True))
    gpus = sum(r["device"] == "gpu" for r in rows)
    meta = PartMeta(SourceMeta(str(path), name, f"{gpus} GPUs", bytes=len(data), events=len(rows)))
    return [write_part(out / "topology", meta, {NCCL_LINKS.name: table})]


@dataclass(frozen=True)
class _Place:
    """Where an element of the file hangs."""

    numa: int | None
    switches: tuple[str, ...] = ()
    """bridges from the root"""
    bus: str | None = None
    link: tuple[float, int] | None = None
    """GT/s and lanes of the narrowest link on the way"""

    def below(self, pci: xml.Element) -> _Place:
        """The place of what hangs under a PCI element."""
        bus = pci.get("busid")
        speed, width = _SPEED.search(pci.get("link_speed", "")), _number(pci, "link_width")
        own = (float(speed[1]), width) if speed and width else None
        known = [x for x in (self.link, own) if x is not None]
        link = min(known, key=lambda x: x[0] * x[1]) if known else None
        bridge = pci.get("class", "").startswith(_BRIDGE)
        return _Place(self.numa, (*self.switches, bus) if bridge and bus else self.switches, bus, link)

    def cells(self) -> dict[str, Any]:
        """Columns that all devices have."""
        return {
            "bus_id": self.bus,
            "numa": self.numa,
            "switches": ",".join(self.switches) or None,
            "pcie_gts": self.link[0] if self.link else None,
            "pcie_width": self.link[1] if self.link else None,
        }


def _walk(node: xml.Element, place: _Place, rows: list[dict[str, Any]]) -> None:
    for child in node:
        if child.tag == "pci":
            _walk(child, place.below(child), rows)
        elif child.tag == "nic":
            _walk(child, place, rows)
        elif child.tag == "gpu":
            _gpu(child, place, rows)
        elif child.tag == "net":
            speed = _number(child, "speed")
            cells = {"device": "nic", "name": child.get("name", "?"), "gbs": speed / 8000 if speed else None}
            rows.append(place.cells() | cells | {"gdr": child.get("gdr") == "1" if child.get("gdr") else None})


def _gpu(gpu: xml.Element, place: _Place, rows: list[dict[str, Any]]) -> None:
    dev = gpu.get("dev", "?")
    gdr = gpu.get("gdr")
    own = {"device": "gpu", "name": dev, "rank": _number(gpu, "rank"), "gdr": gdr == "1" if gdr else None}
    rows.append(place.cells() | own)
    for link in gpu.iter("nvlink"):
        more = {"device": "nvlink", "name": dev, "links": _number(link, "count"), "target": link.get("target")}
        rows.append({"bus_id": place.bus} | more)


def _number(node: xml.Element, key: str) -> int | None:
    text = node.get(key, "")
    return int(text) if re.fullmatch(r"-?\d+", text) else None
