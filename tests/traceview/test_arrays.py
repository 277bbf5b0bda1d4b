"""Arrow arrays made by their buffers are those that pyarrow itself would make, and pandas stays unloaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.errors import InternalError
from traceview.schema.arrays import from_numpy, from_strings, to_numpy

TYPES = st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.bool_()])


@given(kind=TYPES, values=st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=40), cut=st.integers(0, 5))
def test_there_and_back(kind: pa.DataType, values: list[tuple[int, bool]], cut: int) -> None:
    numbers = np.array([v for v, _ in values], np.int64).astype(kind.to_pandas_dtype())
    missing = np.array([m for _, m in values], bool)
    made = from_numpy(numbers, kind, missing)
    assert made == pa.array(numbers, kind, mask=missing)
    made.validate(full=True)
    assert to_numpy(made, 7).tolist() == np.where(missing, np.array(7, numbers.dtype), numbers).tolist()
    assert (
        to_numpy(made.slice(cut), 0).tolist() == np.where(missing, np.zeros(1, numbers.dtype), numbers).tolist()[cut:]
    )
    whole = from_numpy(numbers, kind)
    assert to_numpy(whole.slice(cut)).tolist() == numbers.tolist()[cut:]
    assert to_numpy(pa.chunked_array([whole, whole.slice(cut)])).tolist() == [
        *numbers.tolist(),
        *numbers.tolist()[cut:],
    ]


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_strings(values: list[str]) -> None:
    made = from_strings(values)
    made.validate(full=True)
    assert made == pa.array(values, pa.string())


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InternalError, match="does not fit int32"):
        from_numpy(np.array([2**40]), pa.int32())
    assert from_numpy(np.array([2**40, 1]), pa.int32(), np.array([True, False])).to_pylist() == [None, 1]
    with pytest.raises(InternalError, match="nulls"):
        to_numpy(pa.array([1, None]))
    assert to_numpy(pa.nulls(2, pa.int64()), -1).tolist() == [-1, -1]


def test_analysing_a_trace_does_not_load_pandas(shared_dir: Path) -> None:
    code = (
        "import sys, traceview as tv\ntv.analyze(tv.open(sys.argv[1], cache=False))\nprint('pandas' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, str(shared_dir / "traces/torch/torchrec_resnet18_2ranks")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "False"


def test_reading_a_trace_does_not_load_pandas_or_polars() -> None:
    code = (
        "import sys, json, tempfile, pathlib\n"
        "from traceview_parsers import open_run\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 't.json'\n"
        "path.write_text(json.dumps([{'ph':'X','cat':'cpu_op','name':'a','ts':1,'dur':2,'tid':1,'pid':1}]))\n"
        "run = open_run([path], cache=False)\n"
        "print([m for m in ('pandas', 'polars') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"
