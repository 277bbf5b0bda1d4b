"""Peak bandwidths of links (METHODS f.3) and peak arithmetic (g): data files that the user can override."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec

from traceview.errors import TraceviewError

DEFAULT_FILE = Path(__file__).with_name("peaks.json")
FLOPS_FILE = Path(__file__).with_name("flops.json")


class Device(msgspec.Struct, frozen=True):
    """Links of one kind of GPU. GB/s, one direction; None = it has no NVLink (or xGMI)."""

    match: str
    pcie_gen: int
    nvlink_gbs: float | None = None
    links: int | None = None
    link_gbs: float | None = None

    @property
    def ring_gbs(self) -> float | None:
        """The best ring over its NVLinks: links x what NCCL expects of one, GB/s."""
        return self.links * self.link_gbs if self.links and self.link_gbs else self.nvlink_gbs


class Pcie(msgspec.Struct, frozen=True):
    """A x16 slot, GB/s, one direction."""

    spec_gbs: float
    practical_gbs: float


class Arithmetic(msgspec.Struct, frozen=True):
    """Dense peak of one kind of GPU by precision, TFLOP/s (1e12 a second)."""

    match: str
    dense_tflops: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e6)]]


class Peaks(msgspec.Struct, frozen=True):
    """The file. ``node_nic_gbs``: host (or regular expression) -> bandwidth of all its NICs together, GB/s."""

    devices: list[Device] = []
    flops: list[Arithmetic] = []
    pcie: dict[str, Pcie] = {}
    node_nic_gbs: dict[str, float] = {}
    nvls_over_ring: float = 1.3
    """How far NVLink SHARP may go above the best ring."""
    comment: str = ""

    def device(self, name: str | None) -> Device | None:
        """Links of a GPU by its device name."""
        return next((d for d in self.devices if name and re.search(d.match, name)), None)

    def dense(self, name: str, precision: str) -> float | None:
        """Dense peak of a GPU by its device name, FLOP/s."""
        known = next((a.dense_tflops for a in self.flops if re.search(a.match, name)), {})
        return known[precision] * 1e12 if precision in known else None

    def pcie_of(self, generation: int) -> Pcie | None:
        """A x16 slot of that generation."""
        return self.pcie.get(str(generation))

    def nics_of(self, host: str) -> float | None:
        """NIC bandwidth of a host, if the user gave one."""
        return next((gbs for key, gbs in self.node_nic_gbs.items() if re.fullmatch(key, host)), None)


def load(path: Path | None = None) -> Peaks:
    """The built-in peaks, with the entries of ``path`` before them.

    Raises TraceviewError if the file cannot be read or is not of this form.
    """
    own, flops = _read(DEFAULT_FILE), _read(FLOPS_FILE).flops
    if path is None:
        return msgspec.structs.replace(own, flops=flops)
    given = _read(path)
    return Peaks(
        devices=[*given.devices, *own.devices],
        flops=[*given.flops, *flops],
        pcie=own.pcie | given.pcie,
        node_nic_gbs=own.node_nic_gbs | given.node_nic_gbs,
        nvls_over_ring=given.nvls_over_ring,
    )


@cache
def _read(path: Path) -> Peaks:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Peaks)
        patterns = [d.match for d in found.devices] + [a.match for a in found.flops] + [*found.node_nic_gbs]
        for pattern in patterns:
            re.compile(pattern)
        return found
    except OSError as error:
        raise TraceviewError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (msgspec.MsgspecError, re.error) as error:
        raise TraceviewError(f"{path}: not a peaks file ({error}); see {DEFAULT_FILE.name}") from error
