"""Links of a cluster and the routing table that places collectives on them.

Every GPU has an NVLink port (inside its domain), a PCIe uplink and a NIC; capacities are bytes per second, one
direction. A ring crosses a host boundary over all NICs of the members there; an all-to-all sends each rank's
remote part over its own NIC.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GB = 1_000_000_000


@dataclass(frozen=True)
class Network:
    """Capacities. ``domain``: GPUs in one NVLink domain (None: those of a host; more than a host is allowed)."""

    nvlink: int = 240 * GB
    pcie: int = 24 * GB
    nic: int = 24 * GB
    spine: int = 10_000 * GB
    domain: int | None = None
    intra_latency: int = 12_000
    inter_latency: int = 24_000
    host_staged: bool = False
    """NCCL through host memory: every hop inside a host uses the PCIe uplink, NICs are fed from there too."""
    nics_per_host: int | None = None
    slowed: dict[str, float] = field(default_factory=dict)
    """link -> factor on its capacity"""


@dataclass(frozen=True)
class Cluster:
    """Where ranks are and what connects them."""

    ranks: int
    hosts: int
    net: Network

    @property
    def per_host(self) -> int:
        """GPUs of a host."""
        return self.ranks // self.hosts

    def host(self, rank: int) -> int:
        """Host number of a rank."""
        return rank // self.per_host

    def domain(self, rank: int) -> int:
        """NVLink domain of a rank."""
        return rank // (self.net.domain or self.per_host)

    def nic(self, rank: int) -> str:
        """The NIC that a rank uses."""
        local, count = rank % self.per_host, self.net.nics_per_host or self.per_host
        return f"nic:{self.host(rank)}:{local * count // self.per_host}"

    def capacities(self) -> dict[str, int]:
        """Every link with its capacity, slowed ones included."""
        net = self.net
        caps = {"spine": net.spine}
        for rank in range(self.ranks):
            caps |= {f"nv:{rank}": net.nvlink, f"pcie:{rank}": net.pcie, self.nic(rank): net.nic}
        return {link: int(cap * net.slowed.get(link, 1.0)) for link, cap in caps.items()}

    def spans(self, members: tuple[int, ...]) -> bool:
        """True if the members are not all in one NVLink domain."""
        return len({self.domain(r) for r in members}) > 1

    def latency(self, members: tuple[int, ...]) -> int:
        """Fixed part of a transfer, ns."""
        return self.net.inter_latency if self.spans(members) else self.net.intra_latency

    def loads(
        self, kind: str, members: tuple[int, ...], size: int, parts: dict[int, int] | None = None
    ) -> dict[str, int]:
        """Link -> bytes of one collective with message size S (METHODS f.1) in bytes.

        ``parts``: bytes of the busier direction of each rank in an all-to-all-v (None: S for all).
        """
        n = len(members)
        if n < 2 or not size:
            return {}
        if kind in ("alltoall", "alltoallv"):
            return self._all_to_all(parts or dict.fromkeys(members, size))
        traffic = {"allreduce": 2 * size * (n - 1) // n, "sendrecv": size, "send": size, "broadcast": size}.get(
            kind, size * (n - 1) // n
        )
        return self._ring(members, traffic)

    def _ring(self, members: tuple[int, ...], traffic: int) -> dict[str, int]:
        out: dict[str, int] = {}
        by_domain: dict[int, list[int]] = {}
        for rank in members:
            by_domain.setdefault(self.domain(rank), []).append(rank)
        for local in by_domain.values():
            if len(local) > 1:
                port = "pcie" if self.net.host_staged else "nv"
                out |= {f"{port}:{r}": traffic for r in local}
            if len(by_domain) > 1:
                for rank in local:
                    nic = self.nic(rank)
                    out[nic] = out.get(nic, 0) + -(-traffic // len(local))
                    if self.net.host_staged:
                        out[f"pcie:{rank}"] = out.get(f"pcie:{rank}", 0) + -(-traffic // len(local))
        if len(by_domain) > 1:
            out["spine"] = traffic * len(by_domain)
        return out

    def _all_to_all(self, parts: dict[int, int]) -> dict[str, int]:
        out: dict[str, int] = {}
        members = tuple(parts)
        for rank, size in parts.items():
            near = sum(self.domain(q) == self.domain(rank) for q in members) - 1
            far = len(members) - 1 - near
            port = "pcie" if self.net.host_staged else "nv"
            if near:
                out[f"{port}:{rank}"] = size * near // len(members)
            if far:
                nic = self.nic(rank)
                out[nic] = out.get(nic, 0) + size * far // len(members)
                out["spine"] = out.get("spine", 0) + size * far // len(members)
        return out
