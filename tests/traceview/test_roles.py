"""METHODS c, Roles: stage, replica and rail of every rank as far as the files tell, else a reason."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import Job
from traceview.analysis import roles
from traceview.analysis.groups import columns
from traceview.analysis.rails import rails
from traceview.analysis.tiers import Place

ONE_HOST = dict.fromkeys(range(1000), "a")
MEGATRON = {
    ("tp",): "TENSOR_MODEL_PARALLEL_GROUP",
    ("cp",): "CONTEXT_PARALLEL_GROUP",
    ("cp", "dp"): "DATA_PARALLEL_GROUP_WITH_CP",
    ("pp",): "PIPELINE_MODEL_PARALLEL_GROUP",
    ("pp", "tp"): "MODEL_PARALLEL_GROUP",
    ("dp", "tp"): "TENSOR_AND_DATA_PARALLEL_GROUP",
}
MESH = {("tp",): "mesh_tp", ("cp",): "mesh_cp", ("dp",): "mesh_dp", ("pp",): "mesh_pp"}
SHORT = {("tp",): "tp", ("cp",): "cp:1", ("dp",): "dp", ("cp", "dp"): "dp_cp", ("pp",): "pp", ("ep",): "EP"}


class Mesh:
    """A job of several axes; ``order``: which axis varies fastest first."""

    def __init__(self, order: tuple[str, ...], **size: int) -> None:
        self.order, self.size = order, size
        at = list(product(*(range(size[a]) for a in reversed(order))))
        self.places = [dict(zip(reversed(order), p, strict=True)) for p in at]

    def groups(self, *axes: str) -> list[tuple[int, ...]]:
        """Ranks that differ in these axes only."""
        found: dict[tuple[int, ...], list[int]] = {}
        for rank, place in enumerate(self.places):
            found.setdefault(tuple(v for a, v in place.items() if a not in axes), []).append(rank)
        return [tuple(ranks) for ranks in found.values()]

    def job(self, names: dict[tuple[str, ...], str]) -> Job:
        job = Job()
        for axes, text in names.items():
            for members in self.groups(*(a for a in axes if a in self.size)):
                kind = "sendrecv" if axes == ("pp",) else "allreduce"
                job.add(0, dict.fromkeys(members, 0), 9, group=f"{text}{members[0]}", group_desc=text, kind=kind)
        return job


def told(job: Job, hosts=ONE_HOST):
    table, _ = job.table()
    c = columns(table)
    groups = roles.axes_of(c, roles.descriptions(c))
    here = {r: hosts[r] for r in sorted(set(c.rank.tolist()))}
    return roles.stages(groups), roles.replicas(groups, here)


@given(
    st.permutations(["tp", "cp", "dp", "pp"]),
    st.tuples(*[st.integers(1, 3)] * 4),
    st.sampled_from([MEGATRON, MESH, SHORT]),
)
def test_described_groups_give_the_coordinates_in_any_order_of_the_axes(order, sizes, names) -> None:
    mesh = Mesh(tuple(order), **dict(zip(("tp", "cp", "dp", "pp"), sizes, strict=True)))
    stage, replica = told(mesh.job(names))
    size = mesh.size
    if size["pp"] > 1:
        assert stage.labels == {r: f"stage {p['pp']}" for r, p in enumerate(mesh.places)}
        assert not stage.assumed
    else:
        assert not stage.labels and "pipeline" in stage.why
    if size["dp"] > 1 and size["dp"] < len(mesh.places):
        assert replica.labels == {r: f"replica {p['dp']}" for r, p in enumerate(mesh.places)}
        assert not replica.assumed
    elif size["dp"] > 1:
        assert replica.why == "every rank is a replica of its own: see the ledger by rank"


def test_parts_of_the_data_parallel_axis_make_one() -> None:
    mesh = Mesh(("tp", "shard", "replicate"), tp=2, shard=2, replicate=3)
    names = {("tp",): "mesh_tp", ("shard",): "mesh_dp_shard", ("replicate",): "mesh_dp_replicate"}
    _, replica = told(mesh.job(names))
    assert replica.labels == {r: f"replica {2 * p['replicate'] + p['shard']}" for r, p in enumerate(mesh.places)}
    names.pop(("replicate",))
    assert told(mesh.job(names))[1].why == "only parts of the data-parallel axis are seen"


def test_a_whole_axis_goes_before_its_parts_and_needs_no_other_group() -> None:
    mesh = Mesh(("tp", "intra", "inter"), tp=2, intra=2, inter=2)
    part, whole = "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "DATA_PARALLEL_GROUP_WITH_CP"
    _, replica = told(mesh.job({("intra",): part, ("intra", "inter"): whole}))
    assert replica.labels == {r: f"replica {r // 2}" for r in range(8)}


def test_two_axes_of_data_parallel_groups_are_parts_of_one() -> None:
    mesh = Mesh(("tp", "fsdp", "ddp"), tp=2, fsdp=2, ddp=2)
    _, replica = told(mesh.job({("tp",): "tp", ("fsdp",): "mesh_fsdp", ("ddp",): "mesh_ddp"}))
    assert replica.labels == {r: f"replica {r // 2}" for r in range(8)}


@pytest.mark.parametrize(
    "text",
    ["", "undefined", "default_pg", "mesh_dim_0", "data loader", "EXPERT_DATA_PARALLEL_GROUP", "mesh_dp_mod_ep"],
)
def test_a_description_that_says_something_else_is_no_role(text: str) -> None:
    job = Job()
    for members in ((0, 1), (2, 3)):
        job.add(0, dict.fromkeys(members, 0), 9, group=f"g{members[0]}", group_desc=text)
    stage, replica = told(job)
    assert not stage.labels and not replica.labels and stage.why and replica.why


def test_ranks_that_describe_one_group_differently_tell_nothing() -> None:
    job = Job()
    for members in ((0, 1), (2, 3)):
        job.add(0, dict.fromkeys(members, 0), 9, group_desc=dict(zip(members, ("dp", "tp"), strict=True)))
    assert not told(job)[1].labels


def test_groups_that_contradict_each_other_tell_nothing() -> None:
    job = Job()
    for members, text in (((0, 1), "pp"), ((2, 3), "pp"), ((0, 3), "tp"), ((1, 2), "tp")):
        job.add(0, dict.fromkeys(members, 0), 9, group=f"{members}", group_desc=text)
    assert told(job)[0].why == "other groups cross what would be a stage"


def undescribed(
    tp: int, dp: int, pp: int, sends=lambda p: [(i, i + 1) for i in range(p - 1)], backward: bool = True
) -> Job:
    """Groups without any description: tensor pairs, data-parallel groups, sends along the pipeline."""
    mesh, job = Mesh(("tp", "dp", "pp"), tp=tp, dp=dp, pp=pp), Job()
    for axis in ("tp", "dp"):
        for members in mesh.groups(axis):
            job.add(0, dict.fromkeys(members, 0), 9, group=f"{axis}{members}", group_desc=None)
    for members in mesh.groups("pp"):
        for a, b in (edge for e in sends(pp) for edge in ((e, e[::-1]) if backward else (e,))):
            ends = {"src": members[a], "dst": members[b], "p2p": True, "members": members, "group_desc": None}
            job.add(0, {members[a]: 0}, 9, group=f"pp{members}", kind="send", **ends)
            job.add(0, {members[b]: 0}, 9, group=f"pp{members}", kind="recv", **ends)
    return job


def test_shapes_tell_where_descriptions_do_not() -> None:
    stage, replica = told(undescribed(2, 2, 2))
    assert stage.labels == {r: f"stage {r // 4}" for r in range(8)} and stage.assumed
    assert replica.labels == {r: f"replica {r // 2 % 2}" for r in range(8)} and replica.assumed


def test_a_one_way_ring_is_no_pipeline_and_an_interleaved_pipeline_is() -> None:
    def round_(p):
        return [(i, (i + 1) % p) for i in range(p)]

    assert not told(undescribed(1, 1, 4, round_, backward=False))[0].labels
    assert told(undescribed(1, 1, 4, round_))[0].labels == {r: f"stage {r}" for r in range(4)}
    assert not told(undescribed(1, 1, 4, lambda p: [(0, 2), (1, 3)]))[0].labels


def test_shapes_that_may_mean_something_else_tell_nothing() -> None:
    assert not told(undescribed(1, 4, 2))[1].labels  # stride 1: tensor or data parallel
    assert not told(undescribed(2, 2, 1), {r: f"h{r}" for r in range(8)})[1].labels  # stride 1 across hosts
    assert not told(undescribed(2, 4, 1), {r: f"?{r}" for r in range(8)})[1].labels  # hosts unknown


def test_rails_by_file_then_by_log_then_by_local_rank() -> None:
    hosts = {r: f"h{r // 2}" for r in range(4)}
    by_file = rails(hosts, {"h0": Place(rail="blue"), "h1": Place()}, {0: "mlx5_0:1"})
    assert (by_file.labels, by_file.basis) == ({0: "blue", 1: "blue"}, "the topology file")
    by_log = rails(hosts, {}, {0: "mlx5_0:1", 3: "mlx5_1:1", 9: "mlx5_0:1"})
    assert (by_log.labels, by_log.assumed) == ({0: "mlx5_0:1", 3: "mlx5_1:1"}, False)
    by_index = rails(hosts, {}, {})
    assert by_index.labels == {0: "local rank 0", 1: "local rank 1", 2: "local rank 0", 3: "local rank 1"}
    assert by_index.assumed and by_index.basis.startswith("assumed")


@pytest.mark.parametrize(
    "hosts",
    [dict.fromkeys(range(4), "a"), {0: "a", 1: "b"}, {0: "a", 1: "a", 2: "b"}, {0: "?0", 1: "?0", 2: "?1", 3: "?1"}],
)
def test_no_rail_is_made_up(hosts) -> None:
    found = rails(hosts, {}, {})
    assert not found.labels and found.why


@given(st.lists(st.text(max_size=12), min_size=4, max_size=4))
def test_any_description_is_read_without_harm(texts) -> None:
    job = Job()
    for i, (members, text) in enumerate(zip(((0, 1), (2, 3), (0, 2), (1, 3)), texts, strict=True)):
        job.add(0, dict.fromkeys(members, 0), 9, group=f"{i}{text}", group_desc=text)
    stage, replica = told(job)
    assert bool(stage.labels) != bool(stage.why) and bool(replica.labels) != bool(replica.why)
