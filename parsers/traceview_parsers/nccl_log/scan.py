"""From bytes to records: lines, prefixes, torn and glued records, wrappers; each record goes to its handler."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from traceview_parsers.nccl_log import comms, grammar, hardware, messages, tuning
from traceview_parsers.nccl_log.bench import Bench
from traceview_parsers.nccl_log.calls import Calls
from traceview_parsers.nccl_log.state import Context, Proc, State

Handler = Callable[[State, Context, str], bool]

# By the first four bytes of a message.
HANDLERS: dict[bytes, Handler] = {
    **dict.fromkeys((b"Chan", b"Ring"), comms.edge),
    b"Coll": comms.collnet_edge,
    **dict.fromkeys((b"nccl", b"[Ran"), comms.init),
    b"comm": comms.shape_or_end,
    b"Conn": comms.connected,
    **dict.fromkeys((b"Init", b"Boot"), comms.times),
    b"Patt": comms.pattern,
    b"MNNV": comms.mnnvl,
    b"NCCL": hardware.version,
    b"RCCL": hardware.version,
    b"Usin": hardware.using,
    b"NET/": hardware.net,
    b"GPU ": hardware.gdr_pair,
    **dict.fromkeys((b"+ PC", b"+ NV", b"+ NE", b"+ XG"), hardware.graph),
    **dict.fromkeys((b"Late", b"Broa", b"Redu", b"AllR", b"AllG"), tuning.table),
}
# The begins of the messages that fill a log with all subsystems and carry nothing we keep.
QUIET = frozenset((b"[Pro", b"New ", b"misc", b"Mem ", b"resp", b"opId"))
# Other messages that are known and carry nothing we keep.
NOISE = re.compile(
    rb"\[Proxy|New proxy|Connect(ed|ion) to proxy|proxy|ncclProxy|\[Service|resp\.|UDS|opId|\[?(Send|Recv)Proxy|"
    rb"misc/|init\.cc|\w+\.cc:\d+ (?!->)|Mem |Cuda Host|cudaDriver|NVLS|Tree|threadThr|Threads|Setting aff|P2P |P2p |"
    rb"Check P2P|CC |Plugin|TUNER/|PROFILER/|COLLNET/|ENV/|GIN/|RMA/|Success|Failed to init|Initialized|Assigned|"
    rb"Loaded|Launch mode|DMA-BUF|==|CPU/|GPU/|NIC/|NET/|\d+ ?: |\s+\d+ : |\s*\+ |\s+\w+/|RAS|Channel|Comm|MMAP|"
    rb"Using|Bootstrap|libfabric|Enabled NCCL|Symmetric|CUMEM|Registered|register|Ring|Coll|Register|AllReduce|"
    rb"Accepted|Destroy|Rank \d+: Generated|CALL |Hostname|ROCm|HIP"
)


class Scanner:
    """Feed it blocks of whole lines in order; what it learnt is in ``state``, ``calls`` and ``bench``."""

    def __init__(self, spill: Path) -> None:
        self.state = State()
        self.calls = Calls(spill)
        self.bench = Bench()
        self._contexts: dict[bytes, Context] = {}
        """by the text before a record"""
        self._threads: dict[tuple[Proc, int], Context] = {}
        self._hosted = False

    def feed(self, block: bytes) -> None:
        """Take a block that ends at a line end."""
        state, contexts, record, call = self.state, self._contexts, self._record, self.calls.add
        before = state.lines
        for number, line in enumerate(_undecorated(block).split(b"\n"), before + 1):
            at = line.find(b"NCCL INFO ")
            if at < 0:
                if line:
                    state.lines = number
                    self._plain(line)
                continue
            ctx = contexts.get(line[:at])
            if ctx is None and at > 40:
                ctx = self._wrapped(line, at)
            if ctx is None or line[-1:] == b"]" or line.find(b"NCCL ", at + 10) >= 0:
                state.lines = number
                ctx = self._context(line, at)
                if ctx is None:
                    self._line(line)
                    continue
            ctx.records += 1
            message = line[at + 10 :]
            if b": opCount " in message:
                if not call(ctx, message):
                    state.tear(ctx.proc)
            elif message[:4] not in QUIET:
                state.lines = number
                record(ctx, message)
        state.lines = before + block.count(b"\n") + 1
        self.calls.trim()

    def _plain(self, line: bytes) -> None:
        if b"NCCL " in line:
            self._line(line)
        else:
            self._other(line)

    def feed_cut(self, line: bytes) -> None:
        """Take a last line without line end: whatever it says may be cut, so only complete Init lines count."""
        self.state.lines += 1
        self._line(line, closed=False)

    def _wrapped(self, line: bytes, at: int) -> Context | None:
        """Context of a line whose wrapper changes (time stamps): remembered by what stands after the wrapper."""
        start = line.rfind(b" ", 0, max(line.rfind(b" [", 0, at), 0)) + 1
        ctx = self._contexts.get(line[start:at]) if start else None
        return None if ctx is None or grammar.CUT_PREFIX.search(line, 0, start) else ctx

    def _context(self, line: bytes, at: int) -> Context | None:
        """Context of a plain line that holds one record, remembered by the text before it; None: look closer."""
        found = grammar.PREFIX.search(line)
        if found is None or found["src"] or found["host"] is None or found.end() != at + 9:
            return None
        wrapper = line[: found.start()]
        if line[-1:] == b"]" or line.find(b"NCCL ", at + 10) >= 0 or not _ends_clean(wrapper):
            return None
        ctx = self._resolve(found, line, first=True)
        if ctx is not None:
            if len(self._contexts) > 100_000:
                self._contexts.clear()
            self._contexts[line[found.start() if wrapper[-1:] in (b" ", b"\t") else 0 : at]] = ctx
        return ctx

    def finish(self) -> State:
        """What was learnt, sums made."""
        for ctx in self._threads.values():
            ctx.proc.records += ctx.records
            self.state.records += ctx.records
            tuning.settle(self.state, ctx)
        return self.state

    def _resolve(self, found: re.Match[bytes], line: bytes, *, first: bool) -> Context | None:
        """Process and thread of a prefix. None if it is a rest of a torn record."""
        wrapper = line[: found.start()] if first else b""
        if grammar.CUT_PREFIX.search(wrapper):
            self.state.tear(None)
        if found["host"] is None:
            if self._hosted or found["dev"] is None or not first or not _ends_clean(wrapper):
                return None
            proc = self._proc("?", _wrapper_rank(wrapper) or 0, clean=True)
            tid = 0
        else:
            self._hosted = True
            clean = first and _ends_clean(wrapper)
            proc = self._proc(found["host"].decode("utf8", "replace"), int(found["pid"]), clean=clean)
            tid = int(found["tid"])
        if proc.wrapper_rank is None and wrapper:
            proc.wrapper_rank = _wrapper_rank(wrapper)
        ctx = self._threads.get((proc, tid))
        if ctx is None:
            ctx = self._threads[proc, tid] = Context(proc, tid)
        return ctx

    def _proc(self, host: str, pid: int, *, clean: bool) -> Proc:
        procs = self.state.procs
        proc = procs.get((host, pid))
        if proc is None and not clean:
            # a host glued to the end of something else: it is the known host that the text ends with
            proc = next((p for p in procs.values() if p.pid == pid and p.clean and host.endswith(p.host)), None)
        if proc is None:
            proc = procs[host, pid] = Proc(host, pid, vendor=self.state.vendor)
        proc.clean = proc.clean or clean
        return proc

    def _record(self, ctx: Context, message: bytes) -> None:
        """One whole INFO record that is no call."""
        state = self.state
        key = message[:4]
        if b" Bytes -> " in message:
            tuning.count(ctx, message)
            return
        handler = HANDLERS.get(key)
        if handler is None:
            if key[:1] != b" " and NOISE.match(message):
                return
            handler = self._rare(message)
        text = message.decode("utf8", "replace")
        if not handler(state, ctx, text):
            self._unhandled(ctx, message, text)

    @staticmethod
    def _rare(message: bytes) -> Handler:
        if message[:1].isdigit():
            return comms.channels
        if message[:1] == b" ":
            return tuning.table if b"|" in message else hardware.graph
        return hardware.environment

    def _unhandled(self, ctx: Context, message: bytes, text: str) -> None:
        if messages.note(self.state, ctx.proc, text, warning=False) or messages.TRAIL.fullmatch(text):
            return
        if message[:4] in (b"Chan", b"Ring", b"Coll", b"comm", b"[Ran"):
            self._torn(ctx, text)
        elif not NOISE.match(message):
            self.state.unknown += 1
            ctx.proc.unknown += 1

    def _line(self, line: bytes, *, closed: bool = True) -> None:
        """Any line: several records, none, warnings, wrappers, colours."""
        line = grammar.ANSI.sub(b"", line).rstrip(b"\r")
        repeated = grammar.RAY_REPEATED.search(line)
        if repeated is not None:
            self.state.repeated += int(repeated[1])
            line = line[: repeated.start()]
        found = list(grammar.PREFIX.finditer(line))
        if not found:
            self._other(line)
            return
        ends = [m.start() for m in found[1:]] + [len(line)]
        texts = [line[m.end() + 1 : end] for m, end in zip(found, ends, strict=True)]
        for i, (prefix, text) in enumerate(zip(found, texts, strict=True)):
            last = i + 1 == len(found)
            if not last and text.rstrip(b" |") == texts[-1]:
                continue  # log services print a record twice in a line
            ctx = self._resolve(prefix, line, first=i == 0)
            if ctx is None:
                self.state.records += 1
                self.state.tear(None)
            elif prefix["level"] != b"INFO":
                self._other_level(ctx, prefix, text)
            elif last and closed:
                self._whole(ctx, text)
            else:
                self._open_record(ctx, text)

    def _whole(self, ctx: Context, message: bytes) -> None:
        ctx.records += 1
        if b": opCount " not in message:
            self._record(ctx, message)
        elif not self.calls.add(ctx, message):
            self.state.tear(ctx.proc)

    def _open_record(self, ctx: Context, message: bytes) -> None:
        """A record that something else follows without a line end. Only what ends in its own last word is whole."""
        ctx.records += 1
        text = message.decode("utf8", "replace")
        if text.endswith("COMPLETE") and comms.shape_or_end(self.state, ctx, text):
            return
        self._torn(ctx, text)

    def _torn(self, ctx: Context, text: str) -> None:
        self.state.tear(ctx.proc)
        head = grammar.HEAD.match(text)
        if head is not None:
            ctx.proc.heads.append((head[1], int(head[2]), int(head[3])))

    def _other_level(self, ctx: Context, prefix: re.Match[bytes], text: bytes) -> None:
        ctx.records += 1
        if prefix["level"] in (b"WARN", b"ABORT"):
            source = (prefix["src"] or b"").decode("utf8", "replace").rsplit("/", 1)[-1]
            message = text.decode("utf8", "replace").strip()
            messages.note(self.state, ctx.proc, f"{source} {message}".strip(), warning=True)

    def _other(self, line: bytes) -> None:
        """A line without a record: bare version lines, nccl-tests, the watchdog of PyTorch."""
        if b"CCL version" in line:
            found = grammar.VERSION.search(line.decode("utf8", "replace"))
            if found is not None:
                self.state.version, self.state.cuda = found[2] + found[3], found[4] or self.state.cuda
                self.state.vendor = found[1].lower()
        elif b"Watchdog caught" in line:
            messages.note(self.state, None, line.decode("utf8", "replace").strip(), warning=False)
        elif not ((line[:1] in b" #" or line[:1].isdigit()) and self.bench.take(line)) and grammar.REST.search(line):
            self.state.tear(None)


def _undecorated(block: bytes) -> bytes:
    """Without colours and carriage returns; lines stay lines."""
    if b"\x1b" in block or b"\r\n" in block:
        return grammar.ANSI.sub(b"", block).replace(b"\r\n", b"\n")
    return block


def _ends_clean(wrapper: bytes) -> bool:
    """Whether a prefix after this text is whole: nothing, a blank, or the end of a known wrapper stands before it."""
    if not wrapper:
        return True
    if re.fullmatch(rb"\s*\d+\s+\d+\s+[a-z]\w*\s.*", wrapper) or grammar.CUT_PREFIX.search(wrapper):
        return False  # the begin of a row of nccl-tests, or of another record
    return wrapper[-1:] in b" \t|)" or wrapper.endswith((b">:", b"]:"))


def _wrapper_rank(wrapper: bytes) -> int | None:
    found = grammar.WRAPPER_RANK.search(wrapper)
    return next((int(g) for g in found.groups() if g is not None), None) if found else None
