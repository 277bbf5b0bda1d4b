"""Parts on disk: whole tables, tables in pieces, empty tables."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from traceview.errors import InternalError
from traceview.run import Part, PartMeta, SourceMeta, write_part
from traceview.schema import COUNTERS, HOST_RANGES

WORDS = pa.array(["a", "b"], pa.string())


def piece(start: list[int]) -> pa.Table:
    rows = len(start)
    return HOST_RANGES.build(
        {
            "thread": np.ones(rows, np.int64),
            "start": np.array(start, np.int64),
            "end": np.array(start, np.int64) + 1,
            "kind": np.zeros(rows, np.int8),
            "name": pa.DictionaryArray.from_arrays(pa.array(np.ones(rows, np.int32)), WORDS),
        },
        stored=True,
    )


def meta() -> PartMeta:
    return PartMeta(SourceMeta("x", "test"))


def test_pieces_are_one_table(tmp_path: Path) -> None:
    write_part(tmp_path, meta(), {"host_ranges": (piece(s) for s in ([1, 2], [], [3])), "counters": iter(())})
    part = Part.load(tmp_path)
    assert part.table(HOST_RANGES)["start"].to_pylist() == [1, 2, 3]
    assert part.table(HOST_RANGES)["name"].to_pylist() == ["b"] * 3
    assert part.meta.rows == {"host_ranges": 3, "counters": 0}
    assert part.table(COUNTERS).num_rows == 0 and not (tmp_path / "counters.arrow").exists()


def test_a_wrong_piece_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="counters"):
        write_part(tmp_path, meta(), {"counters": [piece([1])]})
