"""Growing columns: what goes in comes out, also through the temporary files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview_parsers.kineto.columns import Growing, Interner, dictionary
from traceview_parsers.kineto.host import identity


@given(chunks=st.lists(st.integers(0, 40), max_size=12), spill=st.integers(0, 60))
def test_growing(chunks: list[int], spill: int) -> None:
    store = Growing(a=np.int64, b=np.int8)
    store.SPILL_ROWS = spill
    expected: list[int] = []
    for i, rows in enumerate(chunks):
        store.add(rows, a=np.arange(rows) + i, b=i)
        expected += [*range(i, i + rows)]
    assert store.rows == len(expected)
    columns = store.take_all()
    assert columns["a"].tolist() == expected and columns["a"].dtype == np.int64
    assert columns["b"].tolist() == [i for i, rows in enumerate(chunks) for _ in range(rows)]
    assert store.rows == 0 and len(store.take("a")) == 0


def test_dictionary_holds_only_what_is_used() -> None:
    made = dictionary(np.array([2, -1, 0, 2], np.int32), ["a", "b", "c"], missing=True)
    assert made.to_pylist() == ["c", None, "a", "c"]
    assert made.dictionary.to_pylist() == ["a", "c"]
    assert dictionary(np.empty(0, np.int32), []).to_pylist() == []


def test_interner_counts_from_first_sight() -> None:
    names = Interner()
    assert names.codes(["x", None, "x"]).tolist() == [0, 1, 0]
    assert names.strings() == ["x", ""]


@pytest.mark.parametrize("column", [0, 1])
def test_identity_tells_rows_apart(column: int) -> None:
    rows = [np.repeat(np.arange(100), 100), np.tile(np.arange(100), 100)]
    assert len(np.unique(identity(rows))) == 10_000
    rows[column] = rows[column] * 0
    assert len(np.unique(identity(rows))) == 100
