"""The text of a chunk read back by an independent reader, and the lanes inside it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.timeline_world import World, build
from traceview.errors import InternalError
from traceview.result import BlameRow
from traceview.run import write_part
from traceview.schema import COLLECTIVES, GPU_OPS, HOST_RANGES
from traceview_reports.html.timeline import timeline_section
from traceview_reports.html.timeline_bins import bins_of, busy_at
from traceview_reports.html.timeline_data import GROUP_NAMES, Budget, Focus, RankDetail
from traceview_reports.html.timeline_lanes import depths
from traceview_reports.html.timeline_pack import deltas, planes, text

COLUMNS = (
    (("gap", 6), ("dur", 6), ("name", 3), ("kind", 1)),
    (("stream", 2), ("corr", 6), ("delay", 6), ("op", 3), ("bytes", 6)),
    (("wait", 6), ("phase", 1), ("late", 3), ("inst", 5), ("seq", 6), ("fact", 3)),
)


def unpack(data: str, element: str) -> bytes:
    found = re.search(f'id="tv-tl-{element}">([^<]*)<', data)
    assert found, element
    return gzip.decompress(base64.b64decode(found[1]))


def read(raw: bytes, counts: list[int]) -> dict[str, list[int]]:
    """Plain Python on purpose: nothing of the writer is used."""
    out, at = {}, 0
    for columns, n in zip(COLUMNS, counts, strict=True):
        for name, width in columns:
            out[name] = [sum(raw[at + p * n + i] << (8 * p) for p in range(width)) for i in range(n)]
            at += n * width
    assert at == len(raw)
    return out


def unzigzag(v: int) -> int:
    return -(v + 1) // 2 if v % 2 else v // 2


def events(section, rank):
    """(lane key, depth, start, end, name) of every event of a rank, and the raw columns."""
    meta = json.loads(unpack(section.data, "meta"))
    head = next(h for h in meta["chunks"] if h["rank"] == rank)
    columns = read(unpack(section.data, str(rank)), head["n"])
    out, i = [], 0
    for key, _, depth, n, base in head["lanes"]:
        t = base
        for _ in range(n):
            t += columns["gap"][i]
            name = meta["phases"][columns["kind"][i]] if key == "pieces" else meta["names"][columns["name"][i]]
            out.append((key, depth, t, t + columns["dur"][i], name))
            t += columns["dur"][i]
            i += 1
    return meta, head, columns, out


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return build(tmp_path_factory.mktemp("world"), World(ranks=3, steps=3, kernels=12, late=1, slow=3.0))


@pytest.fixture(scope="module")
def section(world):
    run, result, detail = world
    return timeline_section(result, run, detail)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_record_comes_back_to_the_nanosecond(world, section, rank):
    run, _, detail = world
    meta, _, _, found = events(section, rank)
    assert int(meta["origin"]) == detail.origin_ns
    shift = detail.ranks[rank].offset_ns - detail.origin_ns
    want = [
        (s + shift, e + shift, n)
        for table in (GPU_OPS, HOST_RANGES)
        for s, e, n in zip(
            *(run.parts[rank].table(table)[c].to_pylist() for c in ("start", "end", "name")), strict=True
        )
    ]
    assert sorted(x[2:] for x in found if x[0] != "pieces") == sorted(want)
    assert (
        section.embedded
        == section.candidates
        == sum(len(events(section, r)[3]) for r in range(3))
        - sum(sum(x[0] == "pieces" for x in events(section, r)[3]) for r in range(3))
    )


def test_no_lane_overlaps_and_lanes_are_by_meaning(section):
    _, _, _, found = events(section, 0)
    lanes = {}
    for key, depth, start, end, _ in found:
        assert start >= lanes.get((key, depth), start)
        lanes[key, depth] = end
    keys = {key for key, _ in lanes}
    assert keys == {"comm.allreduce", "comm.reduce_scatter", "compute", "copies", "host.1", "pieces"}


def test_facts_of_a_waiting_collective(world, section):
    run, _, detail = world
    meta, head, columns, found = events(section, 0)
    colls = run.parts[0].table(COLLECTIVES)
    rows = [i for i, x in enumerate(found) if x[0] == "comm.allreduce"]
    table = [i for i, k in enumerate(colls["kind"].to_pylist()) if k == "allreduce"]
    waits = (detail.ranks[0].wait_end - colls["start"].to_numpy())[table]
    assert [columns["wait"][i] for i in rows] == waits.tolist() and min(waits) > 0
    assert {columns["late"][i] - 1 for i in rows} == {1}
    inst = np.cumsum([unzigzag(v) for v in columns["inst"]])
    assert [int(inst[i]) for i in rows] == detail.ranks[0].instance[table].tolist()
    assert meta["facts"][columns["fact"][rows[0]] - 1][:5] == ["0", "default_pg", "0-2", 3, "bfloat16"]
    assert {columns["bytes"][i] for i in rows} == {50_000_000}
    assert head["n"][2] == len(colls)


def test_launch_delay_correlation_and_launching_operator(world, section):
    run = world[0]
    meta, head, columns, found = events(section, 2)
    gpu = run.parts[2].table(GPU_OPS).to_pylist()
    of = {(g["start"], g["name"]): g for g in gpu}
    corr = np.cumsum([unzigzag(v) for v in columns["corr"]])
    shift = world[2].ranks[2].offset_ns - world[2].origin_ns
    for i in range(head["n"][1]):
        record = of[found[i][2] - shift, found[i][4]]
        assert unzigzag(columns["delay"][i] - 1) == record["start"] - record["launch_start"]
        assert corr[i] == record["correlation"]
        assert head["streams"][columns["stream"][i]] == record["stream"]
        op = columns["op"][i]
        want = {"sm90_xmma_gemm_bf16": "aten::mm", "layer_norm_kernel": "aten::native_layer_norm"}.get(record["name"])
        if want:
            assert meta["names"][op - 1] == want


def test_pieces_and_bins_are_the_budget_of_the_rank(world, section):
    detail = world[2].ranks[0]
    meta, _, _, found = events(section, 0)
    pieces = [x for x in found if x[0] == "pieces"]
    total = int(detail.segments.bounds[-1] - detail.segments.bounds[0])
    assert sum(e - s for _, _, s, e, _ in pieces) == total
    raw = np.frombuffer(unpack(section.data, "bins"), np.uint8).reshape(3, len(GROUP_NAMES), meta["bins"])
    compute = sum(e - s for _, _, s, e, name in pieces if name == "compute.plain")
    assert raw[0, 0].mean() / 255 == pytest.approx(compute / meta["span"], abs=0.003)
    assert np.abs(raw[0].sum(axis=0).astype(int) - 255).max() <= 3


def test_what_does_not_fit_is_left_out_and_the_text_stays_within_the_limit(world):
    run, result, detail = world
    small = timeline_section(result, run, detail, Budget(events=60))
    assert 0 < small.embedded <= 60 < small.candidates
    meta = json.loads(unpack(small.data, "meta"))
    assert [h["rank"] for h in meta["chunks"]] == [1], "the late rank comes first"
    assert "not embedded" in small.html
    tight = timeline_section(result, run, detail, Budget(bytes=1_500))
    texts = [len(m) for m in re.findall(r'id="tv-tl-\d+">([^<]*)<', tight.data)]
    assert sum(texts) <= 1_500
    none = timeline_section(result, run, detail, Budget(bytes=0))
    assert none.embedded == 0 and len(json.loads(unpack(none.data, "meta"))["ranks"]) == 3


def test_names_of_what_is_not_embedded_are_not_in_the_page(world):
    run, result, detail = world
    none = timeline_section(result, run, detail, Budget(bytes=0))
    assert json.loads(unpack(none.data, "meta"))["names"] == []


def test_only_ranks_with_a_share_of_the_blame_are_marked(world):
    run, result, detail = world
    rows = [BlameRow(r, "node-000", ns, ns, ns, ns, 0, 0) for r, ns in ((0, 9_000), (1, 2_000_000), (2, 1_000_000))]
    blamed = timeline_section(msgspec.structs.replace(result, blame=rows), run, detail)
    ranks = json.loads(unpack(blamed.data, "meta"))["ranks"]
    assert [r["late"] for r in ranks] == [0, 1_000_000, 500_000], "per used step"


def test_focus_comes_before_everything(world):
    run, result, detail = world
    found = timeline_section(result, run, detail, Budget(events=60, focus=(Focus(rank=0, step=1),)))
    meta, head, _, listed = events(found, 0)
    step = meta["steps"]["list"][1]
    starts = [x[2] for x in listed]
    assert [s for s in head["spans"] if abs(s[0]) < 1 << 60 and abs(s[1]) < 1 << 60] == [[step["t0"], step["t1"]]]
    assert min(starts) >= step["t0"] and max(starts) < step["t1"]


def test_host_collectives_are_lanes_with_their_waiting(tmp_path):
    run, result, detail = build(tmp_path, World(ranks=2, steps=1, kernels=3, late=1, slow=9.0))
    part = run.parts[0]
    colls = part.table(COLLECTIVES)
    table = colls.set_column(0, colls.schema.field(0), pa.nulls(len(colls), pa.int64()))
    run.parts[0] = write_part(
        tmp_path / "gloo",
        msgspec.structs.replace(part.meta, rows={}),
        {"gpu_ops": part.table(GPU_OPS), "collectives": table},
    )
    section = timeline_section(result, run, detail)
    assert section.embedded == section.candidates, "host collectives count once on both sides"
    _, _, columns, found = events(section, 0)
    keys = {x[0] for x in found}
    assert "comm.allreduce (host)" in keys and "comm.unknown" in keys
    i = next(i for i, x in enumerate(found) if x[0] == "comm.allreduce (host)")
    assert columns["wait"][i] > 0 and columns["late"][i] == 2
    unknown = next(i for i, x in enumerate(found) if x[0] == "comm.unknown")
    assert columns["wait"][unknown] == 0 and columns["phase"][unknown] == 1, "unmatched is unresolved"


def test_a_second_device_has_lanes_of_its_own(tmp_path):
    run, result, detail = build(tmp_path, World(ranks=1, steps=1, kernels=4, late=0, host=False))
    part = run.parts[0]
    ops = part.table(GPU_OPS)
    again = ops.set_column(0, ops.schema.field(0), pa.array([1] * len(ops), pa.int32()))
    both = pa.concat_tables([ops, again]).unify_dictionaries()
    meta = msgspec.structs.replace(part.meta, rows={})
    run.parts[0] = write_part(tmp_path / "two", meta, {"gpu_ops": both, "collectives": part.table(COLLECTIVES)})
    keys = {x[0]: 0 for x in events(timeline_section(result, run, detail), 0)[3]}
    assert {"compute", "compute (GPU 1)", "comm.allreduce", "comm.unknown (GPU 1)", "copies (GPU 1)"} <= keys.keys()


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40)


@given(spans)
def test_depths_are_as_few_as_open_at_once_and_never_overlap(pairs):
    start = np.array([s for s, _ in pairs], np.int64)
    end = start + np.array([d for _, d in pairs], np.int64)
    depth = depths(start, end)
    assert len(depth) == 0 or depth.min() >= 0
    for d in set(depth.tolist()):
        mine = sorted(zip(start[depth == d].tolist(), end[depth == d].tolist(), strict=True))
        assert all(b[0] >= a[1] for a, b in pairwise(mine))
    long = end > start
    if long.all() and len(start):
        most = max(int(((start <= t) & (end > t)).sum()) for t in start)
        assert depth.max() + 1 == most


def test_nested_ranges_get_their_nesting_depth():
    start, end = np.array([0, 1, 2, 5, 11]), np.array([10, 4, 3, 9, 12])
    assert depths(start, end).tolist() == [0, 1, 2, 1, 0]
    assert depths(start, end, 2).tolist() == [0, 1, -1, 1, 0]


@given(st.lists(st.integers(0, 2**40 - 1), max_size=30))
def test_planes_are_little_endian_columns(values):
    raw = planes(np.array(values, np.int64), 5)
    n = len(values)
    assert [sum(raw[p * n + i] << (8 * p) for p in range(5)) for i in range(n)] == values


@given(st.lists(st.integers(-(2**40), 2**40), max_size=30))
def test_deltas_come_back(values):
    back = np.cumsum([unzigzag(int(v)) for v in deltas(np.array(values, np.int64))])
    assert back.astype(int).tolist() == values


def test_a_value_that_does_not_fit_is_an_internal_error():
    with pytest.raises(InternalError, match="byte planes"):
        planes(np.array([1 << 16]), 2)
    with pytest.raises(InternalError):
        planes(np.array([-1]), 2)


def test_zero_planes_cost_almost_nothing():
    column = np.random.default_rng(1).integers(0, 1 << 16, 100_000)
    assert len(text(planes(column, 6))) < 1.01 * len(text(planes(column, 2)))


def test_busy_time_before_an_edge_is_exact():
    start, end = np.array([10, 40]), np.array([30, 50])
    assert busy_at(start, end, np.array([0, 10, 15, 30, 39, 45, 99])).tolist() == [0, 0, 5, 20, 20, 25, 30]


def test_bins_of_a_rank_without_segments_are_empty():
    assert bins_of(RankDetail(), 0, np.array([0, 10, 20])).sum() == 0
