"""What the threads of one process do, as spans by thread: the host side of the idle split, METHODS a.5."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceview.analysis.intervals import NOTHING, Spans, join, union
from traceview.analysis.ops import NONE, Ops, ints, names
from traceview.analysis.types import Codes, Ints
from traceview.schema import HOST_KINDS, codes

KIND = {name: code for code, name in enumerate(HOST_KINDS)}
# Host work that has a name of its own among the idle causes; the first pattern that is found in a name wins.
TAGS = {
    "alloc": r"^(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree)|^cuMem(Alloc|Free|Create|Release|Map|Unmap)",
    "module_load": r"(Module|Library)Load|Lazy Function Loading|FuncGetAttributes|Module Loading",
    "gc": r"\bgc\b|garbage collect",
    "compile": r"compile_fx|_compile\b|dynamo_timed|autotune|precompile|nvrtc|\bcuLink",
}
_TAG = re.compile("|".join(f"(?P<{tag}>{pattern})" for tag, pattern in TAGS.items()), re.IGNORECASE)
TAG_NAMES = tuple(TAGS)


@dataclass(frozen=True)
class Thread:
    """One thread's intervals by what they mean for an idle GPU."""

    data: Spans
    sync: Spans
    sync_returns: Ints
    """ends of blocking calls, any order"""
    busy: Spans
    """operators, runtime calls, Python"""
    tagged: tuple[Spans, ...]
    """in the order of TAG_NAMES"""


@dataclass(frozen=True)
class Host:
    """The host intervals of a rank, on its GPU axis."""

    thread: Ints
    start: Ints
    end: Ints
    kind: Codes
    tag: Codes
    """index into TAG_NAMES, -1 = none"""
    name: Ints
    """index into names"""
    names: list[str]

    @classmethod
    def of(cls, table: Any, host_shift: int = 0) -> Host:
        """From a ``host_ranges`` table of one rank; ``host_shift`` ns are added to every stamp."""
        index, texts = names(table, "name")
        found = (_TAG.search(text) for text in texts)
        of_name = np.array([TAG_NAMES.index(m.lastgroup) if m and m.lastgroup else -1 for m in found], np.int8)
        return cls(
            thread=ints(table, "thread"),
            start=ints(table, "start") + host_shift,
            end=ints(table, "end") + host_shift,
            kind=codes(table["kind"], HOST_KINDS),
            tag=of_name[index] if len(index) else np.empty(0, np.int8),
            name=index,
            names=texts,
        )

    def of_thread(self, thread: int) -> Thread:
        """The spans of one thread."""
        rows = np.flatnonzero(self.thread == thread)
        kind, tag, start, end = self.kind[rows], self.tag[rows], self.start[rows], self.end[rows]
        sync = kind == KIND["sync"]
        busy = (kind == KIND["op"]) | (kind == KIND["runtime"]) | (kind == KIND["python"])

        def spans(mask: Any) -> Spans:
            return union(start[mask], end[mask])

        return Thread(
            data=spans(kind == KIND["data"]),
            sync=spans(sync),
            sync_returns=end[sync],
            busy=spans(busy),
            tagged=tuple(spans(busy & (tag == code)) for code in range(len(TAG_NAMES))),
        )

    @cached_property
    def comm(self) -> Spans:
        """A host collective is in flight on any thread of the process."""
        mask = self.kind == KIND["host_comm"]
        return union(self.start[mask], self.end[mask])


def together(threads: Iterable[Thread]) -> Thread:
    """Several threads as one: what any of them does."""
    found = list(threads)
    return Thread(
        data=join([t.data for t in found]),
        sync=join([t.sync for t in found]),
        sync_returns=np.concatenate([np.empty(0, np.int64), *(t.sync_returns for t in found)]),
        busy=join([t.busy for t in found]),
        tagged=tuple(join([t.tagged[code] for t in found]) for code in range(len(TAG_NAMES))),
    )


NO_THREAD = Thread(NOTHING, NOTHING, np.empty(0, np.int64), NOTHING, (NOTHING,) * len(TAG_NAMES))


def launching_threads(ops: Ops) -> Ints:
    """Threads that launched a GPU record, ascending."""
    found = np.unique(ops.thread)
    out: Ints = found[found != NONE]
    return out
