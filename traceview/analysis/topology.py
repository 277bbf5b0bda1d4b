"""What an NCCL log says of the machine, as sentences: hosts, wires, start-up, volumes, and what hosts differ in."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from traceview import units

Row = dict[str, Any]
_SHOWN = 6
# Settings that differ between hosts by nature.
_OWN_SETTINGS = ("NCCL_HOSTID", "NCCL_COMM_ID", "NCCL_LOCAL_", "NCCL_DEBUG_FILE")


def story(tables: Mapping[str, Any]) -> list[str]:
    """Sentences about the tables of ``traceview.schema.LOG_TABLES`` (by name), the most general first."""
    procs = merged(tables["nccl_procs"].to_pylist(), "proc", "rank")
    comms = merged(tables["nccl_comms"].to_pylist(), "instance", "rank")
    edges = _edges(tables["nccl_edges"])
    return [
        *_machine(procs),
        *_communicators(procs, comms, edges),
        *_staged(procs, edges),
        *_start(procs, comms),
        *_volumes(procs, comms, tables["nccl_calls"]),
        *[f"Hosts differ: {d.text}" for d in differences(procs)],
        *[f"NIC shared: {s.text}" for s in nic_shared(procs, tables["nccl_edges"])],
        *_topology_file(tables["nccl_links"].to_pylist()),
        *_measured(tables["nccl_bench"]),
        *_messages(tables["nccl_messages"]),
    ]


def notices(tables: Mapping[str, Any]) -> list[str]:
    """What somebody who analyses a run must not miss in its log: errors, shared NICs, hosts that differ."""
    procs = merged(tables["nccl_procs"].to_pylist(), "proc", "rank")
    return [
        *[f"NCCL log: {m}" for m in _messages(tables["nccl_messages"]) if m.startswith("Error")],
        *[f"NCCL log: NIC shared: {s.text}" for s in nic_shared(procs, tables["nccl_edges"])],
        *[f"NCCL log: hosts differ: {d.text}" for d in differences(procs)],
    ]


def merged(rows: list[Row], key: str, sure: str) -> list[Row]:
    """One row per ``key``: what several files say of one process or communicator, put together.

    Of two rows that contradict each other, the one that knows ``sure`` wins, then the earlier one.
    """
    out: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda r: r[sure] is None):
        known = out.get(row[key])
        out[row[key]] = row if known is None else row | {k: v for k, v in known.items() if v is not None}
    return list(out.values())


def _edges(table: Any) -> list[Row]:
    """Edges with the channels of a pair counted together."""
    keys = ["instance", "src", "dst", "via", "gdr", "host_staged", "wire"]
    out: list[Row] = table.group_by(keys).aggregate([("channel", "count_distinct")]).to_pylist()
    return out


def _machine(procs: list[Row]) -> list[str]:
    if not procs:
        return []
    by_host: dict[str, list[int]] = defaultdict(list)
    for p in procs:
        by_host[p["host"]].append(p["rank"] if p["rank"] is not None else -1)
    versions = Counter(_library(p) for p in procs)
    hosts = [f"{h} ({_ranks(r)})" for h, r in sorted(by_host.items())]
    count = f"{len(procs)} {_plural('process', len(procs))} on {len(by_host)} {_plural('host', len(by_host))}"
    out = [f"{', '.join(versions)}: {count}: {_some(hosts)}"]
    nets = Counter(p["network"] for p in procs if p["network"])
    if nets:
        nics = Counter(", ".join(_nic_names(p)) for p in procs if p["nics"])
        speed = Counter(p["nic_gbs"] for p in procs if p["nic_gbs"])
        what = f"Network {', '.join(nets)}"
        what += f"; NICs {nics.most_common(1)[0][0]}" if nics else ""
        out.append(what + (f"; {speed.most_common(1)[0][0]:.4g} GB/s a host" if speed else ""))
    return out


def _library(proc: Row) -> str:
    cuda = f" (CUDA {proc['cuda']})" if proc["cuda"] and proc["vendor"] == "nccl" else ""
    return f"{proc['vendor'].upper()} {proc['version'] or 'of unknown version'}{cuda}"


def _plural(word: str, n: int) -> str:
    return word if n == 1 else word + ("es" if word.endswith("s") else "s")


def _ranks(ranks: list[int]) -> str:
    known = [r for r in ranks if r >= 0]
    if not known:
        return f"{len(ranks)} {_plural('process', len(ranks))}"
    return f"{_plural('rank', len(known))} {units.ranks(known)}"


def _some(items: Iterable[str]) -> str:
    listed = list(items)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


def _nic_names(proc: Row) -> list[str]:
    """NICs without addresses: 'mlx5_0:1/IB', 'eth0'."""
    names = [n.partition("=")[2] for n in (proc["nics"] or "").split(";") if n]
    return [n if "/" in n else n.split(":")[0] for n in names]


def _communicators(procs: list[Row], comms: list[Row], edges: list[Row]) -> list[str]:
    """One sentence per kind of communicator: those of one shape and wiring together."""
    host = {p["proc"]: p["host"] for p in procs}
    wires: dict[str, Counter[str]] = defaultdict(Counter)
    name = {c["instance"]: c["comm"] for c in comms}
    for e in edges:
        if e["instance"] in name:
            wires[name[e["instance"]]][_wire(e)] += e["channel_count_distinct"]
    members: dict[str, list[Row]] = defaultdict(list)
    for c in comms:
        members[c["comm"]].append(c)
    kinds: dict[str, list[str]] = defaultdict(list)
    for comm, rows in members.items():
        first = rows[0]
        hosts = first["nodes"] or (len({host[r["proc"]] for r in rows}) if len(rows) == first["nranks"] else None)
        shape = f"{first['nranks'] or '?'} {_plural('rank', first['nranks'] or 0)}"
        shape += f" on {hosts} {_plural('host', hosts)}" if hosts else ""
        shape += f", {first['channels']} channels" if first["channels"] else ""
        shape += ", NVLink SHARP" if first["nvls"] else ""
        used = " + ".join(w for w, _ in wires[comm].most_common()) or "no edges logged"
        kinds[f"{shape}: {used}"].append(comm)
    out = []
    for text, names in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        which = f"Communicator {names[0]}" if len(names) == 1 else f"{len(names)} communicators"
        out.append(f"{which} ({text.replace(': ', '): ', 1)}")
    return out


def _wire(edge: Row) -> str:
    if edge["gdr"] is None:
        return str(edge["via"])
    return f"{edge['via']} {'with' if edge['gdr'] else 'without'} GPUDirect"


def _staged(procs: list[Row], edges: list[Row]) -> list[str]:
    """Edges that pass host memory, and why as far as the log says."""
    staged = [e for e in edges if e["host_staged"]]
    if not staged:
        return []
    pairs = sorted({(e["src"], e["dst"], e["via"]) for e in staged})
    text = f"Through host memory: {_some(f'{a}->{b} {via}' for a, b, via in pairs)}"
    reasons = Counter(p["gdr_reason"] for p in procs if p["gdr_reason"])
    if any(e["gdr"] is False for e in staged) and reasons:
        text += f"; GPUDirect RDMA is off ({reasons.most_common(1)[0][0]})"
        if any(p["gdr_hca"] for p in procs):
            text += " although the NIC driver offers it"
    if any(str(e["via"]).startswith("NET/Socket") for e in staged):
        text += "; TCP sockets cannot read GPU memory"
    return [text]


def _start(procs: list[Row], comms: list[Row]) -> list[str]:
    """Start-up: the rank that waited least in the bootstrap came last."""
    rank = {p["proc"]: p["rank"] for p in procs}
    out = []
    init = [c["init_s"] for c in comms if c["init_s"] is not None]
    if init:
        out.append(f"Initialisation: {median(init):.3g} s in the median, {max(init):.3g} s at most")
    boot = [(c["bootstrap_s"], rank.get(c["proc"])) for c in comms if c["bootstrap_s"] is not None]
    if len(boot) > 1:
        least, most = min(boot, key=lambda b: b[0]), max(boot, key=lambda b: b[0])
        if most[0] > 1.0 and most[0] > 2 * least[0]:
            late = f"rank {least[1]}" if least[1] is not None else "one process"
            out.append(
                f"Late start: {late} waited {least[0]:.3g} s for the others, they up to {most[0]:.3g} s for it"
            )
    return out


def _volumes(procs: list[Row], comms: list[Row], calls: Any) -> list[str]:
    """Calls and bytes per communicator and function; ranks that made fewer calls than their peers."""
    rank = {p["proc"]: p["rank"] for p in procs}
    who = {c["instance"]: (c["comm"], rank.get(c["proc"])) for c in comms}
    rows = calls.group_by(["instance", "function"]).aggregate([("bytes", "sum"), ("count", "count")]).to_pylist()
    same: dict[tuple[str, str], list[tuple[int, int, Any]]] = defaultdict(list)
    for r in rows:
        comm, where = who.get(r["instance"], ("?", None))
        same[comm, r["function"]].append((r["count_count"], r["bytes_sum"] or 0, where))
    out = []
    for (comm, function), found in sorted(same.items(), key=lambda item: -max(b for _, b, _ in item[1])):
        most = max(n for n, _, _ in found)
        calls = f"{most:,} call{'s' * (most != 1)}"
        text = f"{function} of {comm}: {calls} and {units.size(max(b for _, b, _ in found))} a rank"
        behind = [f"rank {where}: {n:,}" for n, _, where in found if n < most and where is not None]
        rooted = function in ("Send", "Recv", "Broadcast", "Reduce", "Gather", "Scatter")
        if behind and not rooted and len(behind) < len(found):
            text += f"; fewer calls by {_some(behind)}: behind, or cut off"
        out.append(text)
    return out[: 2 * _SHOWN]


@dataclass(frozen=True)
class Difference:
    """Something that should be equal on all hosts: what, and which hosts have which value."""

    what: str
    values: dict[str, list[str]]

    @property
    def text(self) -> str:
        """The rarest first: they are the suspects."""
        parts = sorted(self.values.items(), key=lambda item: (len(item[1]), item[0]))
        told = [f"{value or 'nothing'} on {_some(hosts)}" for value, hosts in parts]
        return f"{self.what}: {'; '.join(told)}"


def differences(procs: list[Row]) -> list[Difference]:
    """What differs between hosts that should be equal: version, network, NICs, link layer, speed, settings."""
    facts: dict[str, dict[str, str]] = defaultdict(dict)
    for p in procs:
        host = p["host"]
        for what, value in _facts(p).items():
            facts[what].setdefault(host, value)
    hosts = {p["host"] for p in procs}
    out = []
    for what, told in sorted(facts.items()):
        if what.startswith("setting"):
            told = {h: told.get(h, "") for h in hosts}
        values: dict[str, list[str]] = defaultdict(list)
        for host, value in sorted(told.items()):
            values[value].append(host)
        if len(values) > 1:
            out.append(Difference(what, dict(values)))
    return out


def _facts(proc: Row) -> dict[str, str]:
    out = {
        name: str(proc[column])
        for name, column in (
            ("NCCL version", "version"),
            ("CUDA version", "cuda"),
            ("network", "network"),
            ("NIC GB/s", "nic_gbs"),
        )
        if proc[column] is not None
    }
    if proc["nics"]:
        names = _nic_names(proc)
        out["NICs"] = ", ".join(names)
        out["link layer"] = ", ".join(sorted({n.split("/")[1] for n in names if "/" in n})) or "sockets"
    for setting in (proc["env"] or "").split(";"):
        name, _, value = setting.partition("=")
        if name and not name.startswith(_OWN_SETTINGS):
            out[f"setting {name}"] = value
    return out


@dataclass(frozen=True)
class Shared:
    """A NIC that several GPUs of a host use while another one has no edge."""

    host: str
    nic: str
    users: list[str]
    idle: list[str]

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.host}: {self.nic} carries {', '.join(self.users)} while {', '.join(self.idle)} idles"


def nic_shared(procs: list[Row], edges: Any) -> list[Shared]:
    """Hosts where two processes send over one NIC while another NIC of the host sends nothing."""
    host = {p["proc"]: p["host"] for p in procs}
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for p in procs:
        for item in (p["nics"] or "").split(";"):
            index, _, nic = item.partition("=")
            if nic and "/" in nic:
                names[p["host"]][int(index)] = nic
    users: dict[tuple[str, int], set[str]] = defaultdict(set)
    rank = {p["proc"]: p["rank"] for p in procs}
    seen = edges.group_by(["proc", "nic", "wire", "side"]).aggregate([]).to_pylist()
    for e in seen:
        if e["wire"] == "net" and e["side"] == "send" and e["nic"] is not None and e["proc"] in host:
            who = rank.get(e["proc"])
            users[host[e["proc"]], e["nic"]].add(f"rank {who}" if who is not None else e["proc"])
    out = []
    for (where, nic), by in sorted(users.items()):
        idle = [n for i, n in sorted(names[where].items()) if (where, i) not in users]
        if len(by) > 1 and idle:
            out.append(Shared(where, names[where].get(nic, f"NIC {nic}"), sorted(by), idle))
    return out


def _topology_file(rows: list[Row]) -> list[str]:
    """GPUs, NVLinks and NICs of a topology file, and the GPUs whose PCIe link is narrower than the others'."""
    gpus = [r for r in rows if r["device"] == "gpu"]
    if not gpus:
        return []
    nvlinks = Counter[str]()
    for r in rows:
        nvlinks[r["name"]] += (r["links"] or 0) if r["device"] == "nvlink" else 0
    per_gpu = Counter(nvlinks[g["name"]] for g in gpus)
    links = ", ".join(f"{n} NVLinks" if n else "no NVLink" for n in sorted(per_gpu, reverse=True))
    nics = Counter(f"{r['name']} {r['gbs'] or 0:.4g} GB/s" for r in rows if r["device"] == "nic")
    out = [f"Topology file: {len(gpus)} GPUs with {links} each; NICs: {_some(sorted(nics)) or 'none'}"]
    width = {g["name"]: g["pcie_gts"] * g["pcie_width"] for g in gpus if g["pcie_gts"] and g["pcie_width"]}
    slow = [
        f"GPU {g['name']} {g['pcie_gts']:.3g} GT/s x{g['pcie_width']}"
        for g in gpus
        if g["name"] in width and width[g["name"]] < max(width.values())
    ]
    return [*out, f"Narrower PCIe link than the other GPUs: {_some(slow)}"] if slow else out


def _measured(bench: Any) -> list[str]:
    """The best row of each nccl-tests table: the mean over sizes that the program prints says nothing."""
    best: dict[str, Row] = {}
    for row in bench.to_pylist():
        if row["test"] not in best or row["busbw"] > best[row["test"]]["busbw"]:
            best[row["test"]] = row
    return [
        f"Measured by {test}: busbw {r['busbw']:.4g} GB/s at {units.size(r['bytes'])}"
        + (f" on {r['ranks']} ranks" if r["ranks"] else "")
        for test, r in sorted(best.items())
    ]


def _messages(table: Any) -> list[str]:
    """Errors and warnings by kind, errors first."""
    kinds: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in table.to_pylist():
        kinds[row["level"], row["kind"]].append(row)
    order = {"error": 0, "warning": 1, "note": 2}
    out = []
    for (level, _), rows in sorted(kinds.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        n = sum(r["count"] for r in rows)
        meaning = f": {rows[0]['meaning']}" if rows[0]["meaning"] else ""
        out.append(f"{level.capitalize()} ({n}x, {rows[0]['proc']}): {rows[0]['text'][:160]}{meaning}")
    return out[: 2 * _SHOWN]
