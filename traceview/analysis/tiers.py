"""Which wire a group of ranks must cross: NVLink domain, host, rack, pod, site (METHODS f.2)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traceview.errors import TraceviewError

# From near to far. `intra-host`: one host, wire unknown.
TIERS = ("self", "nvlink", "pcie", "intra-host", "rack", "pod", "site", "inter-site", "inter-host", "unknown")
_LEVELS = ("rack", "pod", "site")
_COLUMNS = ("host", "domain", "rack", "pod", "site", "rail")


@dataclass(frozen=True)
class Place:
    """Where a host stands; empty = not told."""

    domain: str = ""
    rack: str = ""
    pod: str = ""
    site: str = ""
    rail: str = ""


@dataclass(frozen=True)
class Placement:
    """Host, NVLink domain and place of the ranks of a run."""

    hosts: Mapping[int, str]
    """rank -> host; an unknown host starts with '?'"""
    domains: Mapping[int, str] = field(default_factory=dict)
    """rank -> NVLink domain, where a log or the user tells it"""
    pcie_hosts: frozenset[str] = frozenset()
    """hosts of which a log says that GPUs reach each other over PCIe"""
    places: Mapping[str, Place] = field(default_factory=dict)

    def tier(self, members: Iterable[int]) -> str:
        """One of ``TIERS`` for a group of ranks; NVLink domain decides before the host does."""
        ranks = list(members)
        if len(ranks) < 2:
            return "self"
        hosts = {self.hosts.get(r, "?") for r in ranks}
        domains = {self._domain(r) for r in ranks}
        if "" not in domains and len(domains) == 1:
            return "nvlink"
        if any(h.startswith("?") for h in hosts):
            return "unknown"
        if len(hosts) == 1:
            return "pcie" if hosts <= self.pcie_hosts else "intra-host"
        return self._between([self.places.get(h, Place()) for h in hosts])

    def _domain(self, rank: int) -> str:
        place = self.places.get(self.hosts.get(rank, "?"))
        return (place.domain if place else "") or self.domains.get(rank, "")

    @staticmethod
    def _between(places: list[Place]) -> str:
        """The nearest level that all hosts share; 'inter-host' if the file does not say."""
        for level in _LEVELS:
            names = {getattr(p, level) for p in places}
            if len(names) == 1 and "" not in names:
                return level
        sites = {p.site for p in places}
        return "inter-site" if len(sites) > 1 and "" not in sites else "inter-host"

    def layout(self, members: Iterable[int]) -> Layout:
        """How many ranks of a group each node has; a node is an NVLink domain where known, else a host."""
        nodes: dict[str, int] = {}
        for rank in members:
            node = self._domain(rank) or self.hosts.get(rank, "?")
            nodes[node] = nodes.get(node, 0) + 1
        return Layout(tuple(nodes.values()), tuple(nodes))


@dataclass(frozen=True)
class Layout:
    """Ranks of a group per node (NVLink domain or host)."""

    per_node: tuple[int, ...]
    names: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """n"""
        return sum(self.per_node)

    @property
    def nodes(self) -> int:
        """N"""
        return len(self.per_node)

    @property
    def local(self) -> int:
        """Ranks on the fullest node."""
        return max(self.per_node, default=0)


def load_places(path: Path) -> dict[str, Place]:
    """A topology file: CSV with columns host, domain, rack, pod, site, rail (host is needed, the rest as known).

    Raises TraceviewError for a file that cannot be read, lacks the host column, or names a host twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceviewError(f"{path}: cannot be read ({error}); it must be a CSV file in UTF-8") from error
    rows = csv.DictReader(text)
    columns = [c.strip() for c in rows.fieldnames or []]
    if "host" not in columns:
        raise TraceviewError(f"{path}: no column 'host'; the first line must name {', '.join(_COLUMNS)}")
    out: dict[str, Place] = {}
    for number, row in enumerate(rows, 2):
        cells = {(k or "").strip(): (v or "").strip() for k, v in row.items() if isinstance(v, str)}
        host = cells.pop("host", "")
        if not host:
            continue
        if host in out:
            raise TraceviewError(f"{path}: line {number} names host {host!r} again; keep one line per host")
        out[host] = Place(**{k: v for k, v in cells.items() if k in _COLUMNS})
    return out
