"""What NCCL prints, as patterns. They are used with ``fullmatch``, so that a cut message matches none.

Only ``NCCL <LEVEL>`` is certain in a line: host, thread, device, time and wrapper may be missing, several records
may share a line, and a record may be torn. The grammar of versions 2.4 to 2.30 and of RCCL is covered.
"""

from __future__ import annotations

import re

# host:pid:tid [dev] [ms] [file:line [(function)]] NCCL LEVEL
PREFIX = re.compile(
    rb"(?:(?P<host>[^\s:\[\]|<>]+):(?P<pid>\d+):(?P<tid>\d+) )?(?:\[(?P<dev>-?\d+)\] )?(?:\d+\.\d+ )?"
    rb"(?:(?P<src>[^ ]+:\d+) (?:\([^)]*\) )?)?NCCL (?P<level>INFO|WARN|TRACE|CALL|ABORT)(?= |$)"
)
ANSI = re.compile(rb"\x1b\[[0-9;]*m")
RAY_REPEATED = re.compile(rb" \[repeated (\d+)x across cluster\]$")
WRAPPER_RANK = re.compile(rb"(?:^|[\s|])(?:\[\d+,(\d+)\]<std(?:out|err)>:|\[rank(\d+)\]:|\[(\d+)\]|(\d+):)\s*$")
VERSION = re.compile(r"(NCCL|RCCL) version ?:? ?(\d+\.\d+\.\d+)([^\s+]*)(?:\+(?:cuda|hip)(\d+\.\d+))?")

_BUS = r"\[([0-9a-f]+)\]"
_RCCL_TAIL = r"(?: comm (0x[0-9a-f]+) nRanks (\d+)(?: busId [0-9a-f]+)?)?"
EDGE = re.compile(
    rf"(?:Channel|Ring) (\d+)(?:/(\d+))? : (\d+)(?:{_BUS})? -> (\d+)(?:{_BUS})?(?: \[(send|receive)\])? via "
    rf"(.+?){_RCCL_TAIL}"
)
COLLNET_EDGE = re.compile(rf"(?:CollNet|Coll) (\d+)(?:/(\d+))? : (\d+) \[(send|receive)\] via (.+?){_RCCL_TAIL}")
VIA_P2P = re.compile(
    r"(P2P/(?:direct pointer|IPC|CUMEM|MNNVL|common device|indirect/\d+\[[0-9a-f]+\]))(?:/read)?(?:/CE)?"
)
VIA_SHM = re.compile(r"SHM(?:/(?:direct|CE)){1,2}|direct shared memory")
VIA_NET = re.compile(r"((?:NET|COLLNET)/[^/\s][^/]*)/(\d+)(?:\((\d+)\))?(/GDRDMA(?:\(PCI\))?)?(/Shared)?")

INIT = re.compile(
    r"(?:\[Rank \d+\] )?(?:(\w+) )?comm (0x[0-9a-f]+) rank (\d+) nranks (\d+) cudaDev (\d+)"
    r"(?: nvmlDev (-?\d+))?(?: busId ([0-9a-f]+))?"
    r"(?: parent (0x[0-9a-f]+|\(nil\))(?: (?:splitCount|childCount) (\d+))? color (-?\d+) key (-?\d+))?"
    r"(?: commId (0x[0-9a-f]+))?(?: localSize \d+)?(?: used \d+ bytes(?: on core \d+)?)? ?- Init (START|COMPLETE)"
)
SHAPE = re.compile(
    r"comm (0x[0-9a-f]+) rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+) localRank (\d+) MNNVL (\d+)"
)
END = re.compile(
    r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+)(?: cudaDev (\d+) busId ([0-9a-f]+))? - "
    r"(Destroy|Abort|Revoke) (?:COMPLETE|START)(?:, result \d+)?"
)
# The begin of a torn Init record, and rests of torn records that stand alone in a line.
HEAD = re.compile(r"(?:\w+ )?comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+) ")
CUT_PREFIX = re.compile(rb":\d+:\d+ \[-?\d+\] ")
REST = re.compile(rb" via (?:NET|P2P|SHM)/|- Init (?:START|COMPLETE)$|/GDRDMA(?:/Shared)?$|^ ?NCCL |^\d+\] ")
INIT_TIME = re.compile(r"Init timings(?: - \w+)?: rank (\d+) nranks (\d+) total (\d+\.\d+) \(.*\)")
BOOTSTRAP_TIME = re.compile(r"Bootstrap timings total (\d+\.\d+) \(.*\)")
CHANNELS = re.compile(
    r"(\d+) coll channels(?:, \d+ collnet channels)?(?:, (\d+) nvls channels)?, (\d+) p2p channels, "
    r"\d+ p2p channels per peer"
)
RINGS_CONNECTED = re.compile(r"Connected all rings, use ring PXN \d GDR (\d)" + _RCCL_TAIL)
RING_PATTERN = re.compile(
    r"Pattern 4, crossNic \d+, nChannels (\d+), (?:bw|speed) [\d.]+/[\d.]+, type (\w+)/(\w+), sameChannels \d+.*"
)
MNNVL = re.compile(r"MNNVL busId 0x[0-9a-f]+ fabric UUID (\S+) cliqueId (0x[0-9a-f]+) state (\d+) healthMask \S+")
RING_ORDER = re.compile(r"Channel \d+(?:/\d+)? : +\d+(?: +\d+)*(?: *\.\.\.)? *" + _RCCL_TAIL)
RING_GRAPH = re.compile(r"Ring \d+ : -?\d+ -> \d+ -> -?\d+" + _RCCL_TAIL)

ENV = re.compile(r"((?:NCCL|RCCL)_\w+) set (?:by environment )?to (.*?)\.?")
USING_NETWORK = re.compile(r"Using network (\S.*)")
NIC_LIST = re.compile(r"NET/[\w-]+ ?: Using (\[0\].*)")
NIC = re.compile(r"\[(\d+)\]([^\s\[;]+)")
NIC_SPEED = re.compile(r"NET/IB ?: (?:Made virtual device )?\[(\d+)\] .*?speed=(\d+).*")
GRAPH_NIC = re.compile(r"\s*\+ NET\[([\d.]+)\] - NET/(?:\d+-)?(\d+) \(.*\)")
GRAPH_LINK = re.compile(r"\s*\+ (NVL|PCI|XGMI)\[([\d.]+)\] - .*")
GDR_PAIR_OFF = re.compile(
    r"GPU Direct RDMA Disabled for GPU (\w+) / HCA (\d+) \((?:distance (\d+) >=? (\d+)|(no module[^)]*))\).*"
)
GDR_HCA = re.compile(r"NET/\S+ ?: GPU Direct RDMA (Enabled|Disabled) for HCA (\d+) '([^']*)'.*")

COLL_ARGUMENTS = re.compile(
    rb"count (\d+) datatype (\d+) op \d+ root (-?\d+) comm (0x[0-9a-f]+) \[nranks=(\d+)\] "
    rb"stream (?:0x[0-9a-f]+|\(nil\)|0)(?: task \d+ globalrank \d+)?"
)
CHOICE_NUMBERS = re.compile(r"(?:(\w+): )?(\d+) Bytes -> Algo (\d+) proto (\d+) time [\d.]+")
CHOICE_NAMES = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+) channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}")
CHOICE_KERNEL = re.compile(r"(\w+) \[[\w ]+\]: (\d+) Bytes -> (?:Kernel )?(\S+?)(?: nchannels (\d+) .*)?")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
DTYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)

# Path types from near to far; the number that NCCL prints depends on the version (first version, names).
PATH_TYPES = (
    ((2, 28), "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET DIS"),
    ((2, 27), "LOC NVL NVB C2C PIX PXB PXN P2C PHB SYS NET DIS"),
    ((2, 26), "LOC NVL NVB C2C PIX PXB PXN PHB SYS NET DIS"),
    ((2, 21), "LOC NVL NVB PIX PXB PXN PHB SYS NET DIS"),
    ((2, 12), "LOC NVL NVB PIX PXB PXN PHB SYS DIS"),
    ((2, 8), "LOC NVL NVB PIX PXB PHB SYS"),
    ((2, 6), "LOC NVL PIX PXB PHB SYS NET"),
    ((2, 4), "PIX PXB PHB NODE SYS"),
)


def path_type(number: int, version: str | None) -> str:
    """Name of a path type as that version numbers it; the bare number if the version is unknown."""
    if version is None:
        return str(number)
    major, minor = (int(x) for x in version.split(".")[:2])
    names = next((names.split() for first, names in PATH_TYPES if (major, minor) >= first), [])
    return names[number] if number < len(names) else str(number)


def message_bytes(function: str, count: int, size: int, nranks: int) -> int:
    """Message size S of METHODS f.1 from the arguments of a call (BUSBW section 1)."""
    per_rank = function in ("AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter")
    return count * size * (nranks if per_rank else 1)
