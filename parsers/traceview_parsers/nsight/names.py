"""Names of a report, by small code: only strings that wanted columns refer to are ever read.

A report's string table can hold whole environments and program output (with secrets), so it is never read as a
whole, and a string that looks like an environment is replaced before anything else sees it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceview_parsers.nsight.source import NULL, Source

Codes = np.ndarray[Any, np.dtype[np.int32]]

REMOVED = "(environment removed)"
_ENVIRONMENT = re.compile(r"(?:^|\n)\s*[A-Za-z_]\w*=[^\n]*\n(?:[^\n]*\n)?\s*[A-Za-z_]\w*=")
_SECRET = re.compile(
    r"\b[A-Z0-9_]*(?:SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|ACCESS_KEY|API_KEY)[A-Z0-9_]*\s*[=:]\s*\S"
)
_MAX = 4_096
# emit_nvtx: `aten::add, seq = 12, op_id = 991065, sizes = [..]`; the numbers make every name unique.
OP_NOISE = r"(?s), (?:op_id|seq|sizes|input_op_ids) = .*$"


def clean(text: str) -> str:
    """A name fit to be kept: no environment, no secret assignment, of bounded length."""
    return REMOVED if _ENVIRONMENT.search(text) or _SECRET.search(text) else text[:_MAX]


class Names:
    """Names seen in a report. ``texts[code]`` is the name; code 0 is the name of rows without one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.texts: list[str] = ["(no name)"]
        self._by_text: dict[str, int] = {"(no name)": 0}
        self.numbered: set[int] = set()
        """names from which numbers of emit_nvtx were cut off: operators"""
        self.missing = 0
        """ids that rows refer to and the string table lacks"""
        self._sorted: tuple[Any, Any] = (np.array([NULL]), np.array([0], np.int32))

    def code(self, text: str) -> int:
        """The code of a text."""
        kept = clean(text)
        code = self._by_text.setdefault(kept, len(self.texts))
        if code == len(self.texts):
            self.texts.append(kept)
        return code

    def of_ids(self, ids: Any) -> Codes:
        """Codes of an array of string ids; an id that the table lacks is '(no name)'."""
        known, codes = self._sorted
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        missing = known[at] != ids
        if missing.any():
            self._learn(np.unique(ids[missing]))
            return self.of_ids(ids)
        found: Codes = codes[at]
        return found

    def of_texts(self, texts: Any) -> Codes:
        """Codes of a string array; '' is '(no name)'. Numbers that emit_nvtx adds to a name are cut off."""
        whole = texts.dictionary_encode()
        words = pc.replace_substring_regex(whole.dictionary, OP_NOISE, "")
        cut = pc.not_equal(pc.binary_length(words), pc.binary_length(whole.dictionary))
        kept = words.dictionary_encode()
        table = np.array([self.code(w) if w else 0 for w in kept.dictionary.to_pylist()] or [0], np.int32)
        inner = table[kept.indices.to_numpy(zero_copy_only=False)]
        self.numbered.update(np.unique(inner[cut.to_numpy(zero_copy_only=False)]).tolist())
        codes: Codes = inner[whole.indices.to_numpy(zero_copy_only=False)]
        return codes

    def _learn(self, ids: Any) -> None:
        found = self._source.strings(ids.tolist())
        self.missing += len(ids) - len(found)
        learnt = self.of_texts(pa.array([found.get(i, "") for i in ids.tolist()], pa.string()))
        known = np.concatenate((self._sorted[0], ids))
        codes = np.concatenate((self._sorted[1], learnt))
        order = np.argsort(known)
        self._sorted = known[order], codes[order]


def used_dictionary(names: Names, used: list[int]) -> tuple[Any, Codes]:
    """A dictionary of the names with these codes and the map old code -> index in it."""
    remap = np.full(len(names.texts), -1, np.int32)
    remap[used] = np.arange(len(used), dtype=np.int32)
    return pa.array([names.texts[c] for c in used], pa.string()), remap
