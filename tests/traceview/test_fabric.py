"""Links of a run from device names, logs and topology files."""

from __future__ import annotations

from pathlib import Path

import pytest

from traceview.analysis.fabric import fabric
from traceview.analysis.peaks import load
from traceview.errors import TraceviewError
from traceview.run import Part, PartMeta, Run, SourceMeta
from traceview.schema import COLLECTIVES
from traceview_parsers import nccl_log, nccl_topo
from traceview_parsers.reader import ReadOptions

TOPO = """<system version="1"><cpu numaid="0">
<pci busid="a" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
<pci busid="b" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8"><gpu dev="0" rank="0" gdr="1"/></pci>
<pci busid="c" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="200000" gdr="1"/></nic></pci>
</pci></cpu></system>"""


def run(tmp_path: Path, device: str, log: str = "", topo: str = "") -> Run:
    source = SourceMeta("x", "kineto")
    parts = {
        r: Part(tmp_path, PartMeta(source, rank=r, host=f"h{r}", pid=100 + r, device_name=device, devices=[0]))
        for r in (0, 1)
    }
    logs = []
    for reader, text in ((nccl_log, log), (nccl_topo, topo)):
        if text:
            path, out = tmp_path / reader.name, tmp_path / f"{reader.name}.out"
            path.write_text(text)
            out.mkdir()
            logs += reader.read(path, out, ReadOptions(), None)
    return Run("job", parts, logs, world_size=2)


def test_the_device_name_tells_the_links_of_a_gpu(tmp_path: Path) -> None:
    found, joined = fabric(run(tmp_path, "NVIDIA H100 80GB HBM3"), COLLECTIVES.empty(), load())
    links = found.links[0]
    assert joined is None
    assert (links.ring, links.nvlink, links.pcie, links.node_nics) == (pytest.approx(370.8), 450, 52.0, None)
    assert links.basis == "NVIDIA H100 80GB HBM3: data sheet"


@pytest.mark.parametrize(
    ("device", "nvlink"),
    [
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA A100-SXM4-80GB", 300),
        ("Tesla V100-SXM2-32GB", 150),
        ("NVIDIA GB200", 900),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("AMD Instinct MI300X", 448),
    ],
)
def test_device_names(device: str, nvlink: float | None) -> None:
    known = load().device(device)
    assert known is not None and known.nvlink_gbs == nvlink


def test_a_log_tells_nics_and_pcie(tmp_path: Path) -> None:
    front = "h0:100:100 [0] NCCL INFO "
    where = "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 commId 0xa - Init COMPLETE"
    tree = ["+ PCI[12.0] - GPU/1000 (0)", "+ PCI[24.0] - NIC/2000", "              + NET[25.0] - NET/0 (1/1/25.0)"]
    text = "".join(f"{front}{line}\n" for line in (*tree, where))
    found, joined = fabric(run(tmp_path, "NVIDIA A100-SXM4-80GB", text), COLLECTIVES.empty(), load())
    assert joined is not None and joined.rank_of == {"h0:100:0x1#0": 0}
    assert (found.links[0].ring, found.links[0].pcie, found.links[0].node_nics) == (None, 12.0, 25.0)
    assert found.links[1].node_nics == 25.0 and "as logged on other hosts" in found.links[1].basis


def test_a_topology_file_tells_width_and_the_shared_uplink(tmp_path: Path) -> None:
    found, _ = fabric(run(tmp_path, "NVIDIA A100-SXM4-80GB", topo=TOPO), COLLECTIVES.empty(), load())
    links = found.links[0]
    assert links.ring is None and links.shared_uplink  # no NVLink in the file, GPU and NIC under one bridge
    assert links.pcie == pytest.approx(16 * 8 / 8 * 0.8)
    assert links.node_nics == 25.0


def test_peaks_of_the_user_come_first(tmp_path: Path) -> None:
    path = tmp_path / "peaks.json"
    path.write_text('{"devices": [{"match": "H100", "pcie_gen": 5, "nvlink_gbs": 1}], "node_nic_gbs": {"h.": 400}}')
    found, _ = fabric(run(tmp_path, "NVIDIA H100 80GB HBM3"), COLLECTIVES.empty(), load(path))
    assert (found.links[0].ring, found.links[0].node_nics) == (1, 400)
    other = tmp_path / "other.json"
    other.write_text("[]")
    with pytest.raises(TraceviewError, match="not a peaks file"):
        load(other)
