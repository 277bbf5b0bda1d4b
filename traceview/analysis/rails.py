"""NIC rail of every rank: from a topology file, else from the NCCL log, else assumed by local index (METHODS e.7)."""

from __future__ import annotations

from collections.abc import Mapping

from traceview.analysis.join import Joined
from traceview.analysis.roles import Places
from traceview.analysis.tiers import Place
from traceview.run import Run
from traceview.schema.nccl import NCCL_EDGES

_WHY = "no topology file, no NCCL log with network edges, and the hosts are unknown, unlike or of one rank"


def rails(hosts: Mapping[int, str], places: Mapping[str, Place], nics: Mapping[int, str]) -> Places:
    """Rail by rank. ``hosts``: host by rank; ``places``: the topology file; ``nics``: what ``logged_nics`` gives."""
    given = {r: place.rail for r, h in hosts.items() if (place := places.get(h)) is not None and place.rail}
    if given:
        return Places("rail", given, "the topology file")
    logged = {r: nics[r] for r in hosts if r in nics}
    if logged:
        return Places("rail", logged, "the NCCL log: NICs of network edges")
    return _by_local_index(hosts)


def _by_local_index(hosts: Mapping[int, str]) -> Places:
    """The same local index on every host of several of equal size: a rail where each GPU has its own NIC."""
    ranks: dict[str, list[int]] = {}
    for rank in sorted(hosts):
        ranks.setdefault(hosts[rank], []).append(rank)
    sizes = {len(members) for members in ranks.values()}
    if len(ranks) < 2:
        return Places("rail", why="all ranks are on one host")
    if len(sizes) != 1 or sizes == {1} or any(h.startswith("?") for h in ranks):
        return Places("rail", why=_WHY)
    labels = {r: f"local rank {i}" for members in ranks.values() for i, r in enumerate(members)}
    return Places("rail", labels, "assumed: the same local rank on every host shares a rail", assumed=True)


def logged_nics(run: Run, joined: Joined | None) -> dict[int, str]:
    """NICs by rank as the network edges of the log name them: those it sends over, else those it receives from.

    By device name where every such NIC has one, else by index ('NIC 2').
    """
    if joined is None:
        return {}
    table = run.log_tables(NCCL_EDGES).group_by(["instance", "wire", "side", "nic"]).aggregate([])
    used: dict[str, dict[int, set[int]]] = {"send": {}, "receive": {}}
    for row in table.to_pylist():
        rank = joined.rank_of.get(row["instance"])
        if row["wire"] == "net" and row["nic"] is not None and rank is not None:
            used[row["side"]].setdefault(rank, set()).add(row["nic"])
    found = used["receive"] | used["send"]
    names = {rank: _names(joined, rank) for rank in found}
    if all(nic in names[rank] for rank, nics in found.items() for nic in nics):
        return {rank: ", ".join(sorted(names[rank][nic] for nic in nics)) for rank, nics in found.items()}
    return {rank: ", ".join(f"NIC {nic}" for nic in sorted(nics)) for rank, nics in found.items()}


def _names(joined: Joined, rank: int) -> dict[int, str]:
    """Device names of a rank's host by index: {0: 'mlx5_0:1'}."""
    out: dict[int, str] = {}
    for proc in joined.procs_of.get(rank, []):
        for item in (proc["nics"] or "").split(";"):
            index, _, name = item.partition("=")
            if index.isdigit() and "/" in name:
                out[int(index)] = name.partition("/")[0]
    return out
