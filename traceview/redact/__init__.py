"""Pseudonyms for names: what is sent to others tells nothing of hosts, users, paths, models and projects.

The analysis works on the recorded names (patterns, the topology file and other runs are told by them). What it found
and the opened run then pass ``Redactor``, every string of them, before any output sees them. So no output needs code
for this, and no number can change.

The rule is a whitelist: see ``traceview.redact.words``. Numbers, times, ranks and device names stay.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from traceview.redact.words import NAMESPACES, is_public
from traceview.result import Result
from traceview.run import Part, Run
from traceview.schema import NAME, STR, Table
from traceview.schema.arrays import from_strings
from traceview.schema.nccl import NCCL_PROCS

Value = TypeVar("Value")
# Dictionaries whose keys are traceview's own words; the keys of any other are names.
_OWN_KEYS = frozenset(
    (
        *("facts", "metrics", "thresholds", "leaves_ns", "sub_ns", "shares", "coactivity_ns", "cause_terms_ns"),
        *("parts_ns", "blame_by_untold", "rows", "marks"),
    )
)
LENGTH = 8  # of base32: 40 bits

_ATOM = r"[\w@+~$/.\\-]+"
_PLAIN = re.compile(_ATOM)
_HEX = "[0-9a-fA-F]"
_TOKEN = re.compile(
    rf"(?P<url>\w+://[^\s\"'<>]+)"
    rf"|(?P<id>(?<!\w){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?!\w)|(?<!\w)(?=\d*[a-fA-F]){_HEX}{{16,}}(?!\w))"
    rf"|(?P<addr>(?<![\w:.-]){_HEX}{{1,4}}(?::{_HEX}{{0,4}}){{3,7}}(?![\w:])|fe80::[0-9a-fA-F:]+)"
    rf"|(?P<bus>(?<![\w:])(?:{_HEX}{{4,8}}:)?{_HEX}{{2}}:{_HEX}{{2}}\.\d(?!\w))"
    rf"|(?P<public>(?<![\w:])(?:{'|'.join(NAMESPACES)})::[\w:~]+)"
    rf"|(?P<atom>{_ATOM})"
)
_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*")
_DOMAIN = re.compile(
    r"(?:[\w-]+\.)+(?:com|org|net|edu|gov|io|ai|eu|cloud|local|localdomain|internal|lan|corp|intra)", re.I
)
_ROOTED = re.compile(r"(?:~\w*|[A-Za-z]:)?[/\\][\w.@~$+-]")
_DEVICE = re.compile(r"(?:NVIDIA|AMD|Intel|Tesla|Quadro|GeForce|Instinct)[\w ()-]{1,40}")
_SYSTEM = re.compile(r"/(?:dev|proc|sys)(?:/\w+)?")
_HOME = re.compile(r"(?:^|[/\\])(?:home|Users|users|scratch|workspace)[/\\]([^/\\]+)[/\\]")
_RECORDED = re.compile(r"(?:^|[/\\])([^/\\]+?)_\d+\.\d+\.pt\.trace\.json")  # PyTorch names files after the host
_PIECE = re.compile(r"[^\W_]+|[\W_]+")
_NUMBERED = re.compile(r"(.*?)((?:_?[0-9]+)*)", re.S)


class Redactor:
    """Names -> pseudonyms under a key: equal names give equal pseudonyms, in every output and every run.

    ``originals``: pseudonym -> what it stands for, of all that were given out. ``known``: names told by ``know``,
    which are replaced as a whole wherever they stand.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.known: dict[str, str] = {}
        self.originals: dict[str, str] = {}
        self._inside: dict[str, str] = {}
        self._first: set[str] = set()
        self._odd: list[str] = []
        self._done: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        """Tells whether two outputs were made with one key."""
        return self._hash("key", "")

    def _hash(self, kind: str, name: str) -> str:
        digest = hmac.digest(self._key, f"{kind}\0{name}".encode("utf-8", "surrogatepass"), "sha256")
        return base64.b32encode(digest).decode()[:LENGTH].lower()

    def pseudonym(self, kind: str, name: str) -> str:
        """'host-k3f7q2ab' for a name; ``kind``: host, user, path, run, addr, name."""
        made = f"{kind}-{self._hash(kind, name)}"
        self.originals[made] = name
        return made

    def know(self, kind: str, name: str | None) -> None:
        """Tell a host, path or run. Runs of public names and '?' for an unknown host are no names."""
        if not name or name in self.known or name.startswith("?") or (kind == "run" and is_public_text(name)):
            return
        if kind != "path":
            self._keep(name, self.pseudonym(kind, name))
            return
        self.known[name] = self.path(name)
        folder = _split_path(name)[0]
        if folder and not _PLAIN.fullmatch(folder) and folder not in self.known:
            self._keep(folder, self.pseudonym("path", folder.rstrip("/")) + "/")
        if user := _HOME.search(name):
            self.know("user", user.group(1))

    def _keep(self, name: str, pseudonym: str) -> None:
        """A name to be found in sentences too, unless it is a number or a word that may stand there by itself."""
        self.known[name] = pseudonym
        self._done.clear()
        if name.isdecimal() or (name.isalpha() and is_public(name)):
            return
        if _PLAIN.fullmatch(name):
            self._inside[name] = pseudonym
            self._first.update(_PIECE.findall(name)[:1])
        else:
            self._odd = sorted([*self._odd, name], key=len, reverse=True)

    def _stay(self, device: str | None) -> None:
        if device and _DEVICE.fullmatch(device):
            self.known[device] = device

    def know_run(self, run: Run) -> None:
        """Tell the hosts, the files and the name of a run, and its devices, which stay."""
        self.know("run", run.name)
        for device in {part.meta.device_name for part in run.parts.values()}:
            self._stay(device)
        for part in (*run.parts.values(), *run.logs):
            self.know("host", part.meta.host)
            self.know("path", part.meta.source.path)
        for source in run.unread:
            self.know("path", source.path)
        for host in run.log_tables(NCCL_PROCS)["host"].unique().to_pylist() if run.logs else ():
            self.know("host", host)

    def know_result(self, result: Result) -> None:
        """The same of a result; names in one that was redacted before are pseudonyms already."""
        run = result.run
        if run.redacted:
            for name in (run.name, *run.hosts):
                self._keep(name, name)
            return
        self.know("run", run.name)
        for device in run.device_names:
            self._stay(device)
        for host in run.hosts:
            self.know("host", host)
        for source in run.sources:
            self.know("path", source.path)

    def path(self, text: str) -> str:
        """A path: its folder as one pseudonym, and the file name word by word."""
        if _SYSTEM.fullmatch(text):
            return text
        if host := _RECORDED.search(text):
            self.know("host", host.group(1))
        folder, name = _split_path(text)
        return (f"{self.pseudonym('path', folder.rstrip('/'))}/" if folder else "") + self._words(name)

    def text(self, text: str) -> str:
        """Any text, a name or a sentence: what is not public is replaced."""
        done = self._done.get(text)
        if done is None:
            done = self._done[text] = self.known.get(text) or self._sentence(text)
        return done

    def _sentence(self, text: str) -> str:
        for name in self._odd:
            if name in text:
                return self.known[name].join(map(self.text, text.split(name)))
        return _TOKEN.sub(self._token, text)

    def _token(self, found: re.Match[str]) -> str:
        kind, text = found.lastgroup, found.group()
        if kind in ("public", "bus"):
            return text
        if kind == "atom":
            return self._atom(text)
        return self.pseudonym({"id": "name", "url": "addr"}.get(str(kind), str(kind)), text)

    def _atom(self, atom: str) -> str:
        text = atom.rstrip(".-")
        end = atom[len(text) :]
        for name in (atom, text):
            if "/" in name and name in self.known:  # a file
                return self.known[name] + atom[len(name) :]
        if _ROOTED.match(text) or _RECORDED.search(text):
            return self.path(text) + end
        for pattern, kind in ((_MAIL, "user"), (_IPV4, "addr"), (_DOMAIN, "host")):
            if pattern.fullmatch(text) and not (kind == "addr" and any(int(n) > 255 for n in text.split("."))):
                return self.pseudonym(kind, text) + end
        return self._words(text) + end

    def _words(self, text: str) -> str:
        """Known names inside, then identifier by identifier."""
        pieces = _PIECE.findall(text)
        out, rest, i = [], "", 0
        while i < len(pieces):
            stop = self._known_from(pieces, i)
            if stop:
                out += [self._identifiers(rest), self._inside["".join(pieces[i:stop])]]
                rest, i = "", stop
            else:
                rest += pieces[i]
                i += 1
        return "".join([*out, self._identifiers(rest)])

    def _known_from(self, pieces: list[str], i: int) -> int:
        """Where the longest known name that begins with piece ``i`` ends; 0 = none does."""
        if pieces[i] not in self._first:
            return 0
        stops = range(len(pieces), i, -1)
        return next((stop for stop in stops if "".join(pieces[i:stop]) in self._inside), 0)

    def _identifiers(self, text: str) -> str:
        return re.sub(r"\w+", self._identifier, text)

    def _identifier(self, found: re.Match[str]) -> str:
        word = found.group()
        if is_public(word):
            return word
        stem, number = _NUMBERED.fullmatch(word).groups()  # type: ignore[union-attr]
        if is_public(stem):
            return word
        if any(c.isdigit() for c in stem) and not number.startswith("_"):  # the end of a token, not a counter
            stem, number = word, ""
        return self.pseudonym("name", stem) + number

    def value(self, value: Value) -> Value:
        """A value of structs, lists and dictionaries with every string redacted, keys too."""
        out: Any = value
        if isinstance(value, str):
            out = self.text(value)
        elif isinstance(value, msgspec.Struct):
            out = msgspec.structs.replace(
                value, **{n: self._field(n, getattr(value, n)) for n in value.__struct_fields__}
            )
        elif isinstance(value, dict):
            out = {self.value(k): self.value(v) for k, v in value.items()}
        elif isinstance(value, list | tuple):
            out = type(value)(map(self.value, value))
        return out  # type: ignore[no-any-return]

    def _field(self, name: str, value: Any) -> Any:
        if name in _OWN_KEYS:
            return {k: self.value(v) for k, v in value.items()}
        return self.value(value)

    def result(self, result: Result) -> Result:
        """A result as others may see it; one that was redacted before stays as it is."""
        self.know_result(result)
        if result.run.redacted:
            return result
        out = self.value(result)
        out.run.redacted = self.fingerprint
        out.quality.warnings.append(
            f"names are pseudonyms (--redact, key {self.fingerprint}); numbers and times are not changed"
        )
        out.verdict.coverage += "  names are pseudonyms"
        return out

    def run(self, run: Run) -> Run:
        """An opened run whose tables show pseudonyms; what is on disk stays as it is."""
        self.know_run(run)
        return replace(
            run,
            name=self.text(run.name),
            parts={rank: self._part(part) for rank, part in run.parts.items()},
            logs=[self._part(part) for part in run.logs],
            problems=self.value(run.problems),
            unread=self.value(run.unread),
        )

    def _part(self, part: Part) -> Part:
        return _Part(part.folder, self.value(part.meta), self)


def _split_path(text: str) -> tuple[str, str]:
    """(folder with its slash, name); like os.path.split, for paths of other systems too."""
    at = max(text.rfind("/"), text.rfind("\\")) + 1
    return text[:at], text[at:]


def is_public_text(text: str) -> bool:
    """Whether every word of a text is public."""
    return all(map(is_public, re.findall(r"\w+", text))) and not PurePath(text).is_absolute()


@dataclass(frozen=True)
class _Part(Part):
    """A part whose tables show pseudonyms."""

    redactor: Redactor

    def table(self, declared: Table) -> Any:
        """The stored table with its open names and texts redacted."""
        table = super().table(declared)
        for at, field in enumerate(table.schema):
            if field.type in (NAME, STR):
                table = table.set_column(at, field, self._column(table.column(at)))
        return table

    def _column(self, column: Any) -> Any:
        return pa.chunked_array([self._array(chunk) for chunk in column.chunks], column.type)

    def _array(self, array: Any) -> Any:
        """Each name once, however many rows it has."""
        plain = array.type == STR
        named = array.dictionary_encode() if plain else array
        shown = from_strings([self.redactor.text(name) for name in named.dictionary.to_pylist()])
        out = pa.DictionaryArray.from_arrays(named.indices, shown)
        return out.dictionary_decode() if plain else out
