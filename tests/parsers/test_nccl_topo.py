"""An NCCL topology file becomes rows of links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from traceview.errors import TraceviewError
from traceview.schema.nccl import NCCL_LINKS
from traceview_parsers import nccl_topo
from traceview_parsers.reader import ReadOptions
from traceview_parsers.registry import find_reader

XML = """<system version="1">
  <cpu host_hash="0x1" numaid="1" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
    <pci busid="0000:40:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:41:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8">
        <gpu dev="0" sm="80" rank="4" gdr="1">
          <nvlink target="0000:c4:00.0" count="12" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:42:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"""


def read(text: str, folder: Path) -> list[dict[str, Any]]:
    path = folder / "topo.xml"
    path.write_text(text)
    out = folder / "out"
    out.mkdir()
    (part,) = nccl_topo.read(path, out, ReadOptions(), None)
    found: list[dict[str, Any]] = NCCL_LINKS.validate(part.table(NCCL_LINKS)).to_pylist()
    return found


def test_links(tmp_path: Path) -> None:
    gpu, nvlink, nic = read(XML, tmp_path)
    assert (gpu["device"], gpu["name"], gpu["rank"], gpu["numa"], gpu["gdr"]) == ("gpu", "0", 4, 1, True)
    assert (gpu["switches"], gpu["pcie_gts"], gpu["pcie_width"]) == ("0000:40:00.0", 16.0, 8)  # half the lanes
    assert (nvlink["links"], nvlink["target"]) == (12, "0000:c4:00.0")
    assert (nic["name"], nic["gbs"], nic["pcie_width"]) == ("mlx5_0", 25.0, 16)  # the bridge above is the slowest


def test_it_is_told_by_its_content() -> None:
    reader = find_reader(XML.encode(), Path("any"))
    assert reader is not None and reader.name == "nccl_topo"
    assert not nccl_topo.sniff(b"<html><system></html>", Path("a"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (XML[:300], "not well-formed"),
        ("<system version='1'><cpu numaid='0'></cpu></system>", "no GPU"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + XML, "document type"),
    ],
)
def test_errors(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(TraceviewError, match=reason):
        read(text, tmp_path)
