"""Groups of ranks in different formats: one where the members leave no other, else apart, and said so."""

from __future__ import annotations

from typing import Any

import pytest

from traceview.analysis.formats import unify
from traceview.analysis.match import match
from traceview.schema import COLLECTIVES

FORMATS = {0: "kineto", 1: "kineto", 2: "nsight", 3: "nsight"}


def table(*rows: dict[str, Any]) -> Any:
    """Rows sorted as a run gives them: by rank and start."""
    plain = {"device": 0, "stream": 7, "coalesced": 1, "p2p": False, "kind": "allreduce", "name": "k(int)"}
    full = [plain | {"facts": "kernel_args", "op": i, "end": r["start"] + 10} | r for i, r in enumerate(rows)]
    full.sort(key=lambda r: (r["rank"], r["start"]))
    return COLLECTIVES.build({c.name: [r.get(c.name) for r in full] for c in COLLECTIVES.columns})


def torch(rank: int, start: int, group: str, members: str, size: int = 80, **more: Any) -> dict[str, Any]:
    elems = {"elems_in": size // 4, "elems_out": size // 4, "dtype": "Float", "bytes": size}
    count = {"0-3": 4}.get(members, 2)
    return {"rank": rank, "start": start, "group": group, "members": members, "group_size": count} | elems | more


def nsys(rank: int, start: int, comm: str | None, count: int, size: int | None = 80, **more: Any) -> dict[str, Any]:
    facts = {"group": comm, "comm_id": comm, "group_size": count if comm else None, "bytes": size, "facts": "payload"}
    return {"rank": rank, "start": start, "name": "k(long)"} | facts | more


def groups(found: Any) -> list[tuple[int, str | None, str | None]]:
    return [(r["rank"], r["group"], r["members"]) for r in found.to_pylist()]


def test_members_that_both_tell() -> None:
    rows = [torch(r, 10, "0", "0-3", seq=1) for r in (0, 1)] + [nsys(r, 10, "0xa", 4, members="0-3") for r in (2, 3)]
    found, notes = unify(table(*rows), FORMATS)
    assert groups(found) == [(r, "0", "0-3") for r in range(4)]
    assert notes == ["groups matched across formats by their members: 1 (0 = 0xa)"]
    assert [(r["elems_in"], r["dtype"]) for r in found.to_pylist()] == [(80, None)] * 4
    COLLECTIVES.validate(found, stored=False)
    matched = match(found, found["start"].to_numpy() * 0, 4, {0: "a", 1: "a", 2: "b", 3: "b"})
    assert matched.full.tolist() == [True] and matched.groups[0].level == "K2"


def test_members_are_found_by_the_ranks_that_call() -> None:
    """Data parallel pairs 0,2 and 1,3 over two tensor parallel groups: the pairs cross the formats."""
    rows = [
        torch(0, 10, "tp", "0-1", 32), torch(1, 10, "tp", "0-1", 32),
        torch(0, 50, "dp", "0,2"), torch(1, 50, "dp", "1,3"),
        nsys(2, 10, "0xa", 2, 32), nsys(3, 10, "0xa", 2, 32), nsys(2, 50, "0xb", 2), nsys(3, 50, "0xc", 2),
    ]  # fmt: skip
    found, notes = unify(table(*rows), FORMATS)
    assert groups(found)[4:] == [(2, "0xa", None), (2, "dp", "0,2"), (3, "0xa", None), (3, "dp", "1,3")]
    assert notes == ["groups matched across formats by their members: 2 (dp = 0xb, dp = 0xc)"]


def test_two_groups_of_the_same_ranks_stay_apart() -> None:
    rows = [torch(0, 10, "a", "0,2"), torch(0, 50, "b", "0,2"), nsys(2, 10, "0xa", 2), nsys(2, 50, "0xb", 2)]
    whole = table(*rows)
    found, notes = unify(whole, {0: "kineto", 2: "nsight"})
    assert found is whole
    assert notes == [
        f"communicator {c} of ranks 2 may be more than one group of the others (a, b): not matched across formats"
        for c in ("0xa", "0xb")
    ]


def test_calls_tell_groups_of_the_same_ranks_apart() -> None:
    rows = [
        torch(0, 10, "a", "0,2", 80), torch(0, 20, "a", "0,2", 40), torch(0, 50, "b", "0,2", 40),
        nsys(2, 10, "0xa", 2, 80), nsys(2, 20, "0xa", 2, 40), nsys(2, 50, "0xb", 2, 40),
    ]  # fmt: skip
    found, _ = unify(table(*rows), {0: "kineto", 2: "nsight"})
    assert groups(found)[3:] == [(2, "a", "0,2"), (2, "a", "0,2"), (2, "b", "0,2")]


@pytest.mark.parametrize(
    "row",
    [
        nsys(2, 10, "0xa", 3),  # of another size
        nsys(2, 10, "0xa", 2, members="2-3"),  # of other members
        nsys(2, 10, "0xa", 2, 4000),  # other messages
        nsys(2, 10, "0xa", 2, kind="allgather", size=None),
        nsys(3, 10, "0xa", 2),  # not a member
    ],
)
def test_what_cannot_be_the_group_is_not(row: dict[str, Any]) -> None:
    whole = table(torch(0, 10, "a", "0,2"), row)
    found, notes = unify(whole, {0: "kineto", 2: "nsight", 3: "nsight"})
    assert found is whole
    assert len(notes) == 1 and "is no group that the others tell: not matched across formats" in notes[0]


def test_one_format_is_left_alone() -> None:
    whole = table(torch(0, 10, "a", "0-3"), torch(1, 10, "a", "0-3"))
    found, notes = unify(whole, {0: "kineto", 1: "kineto"})
    assert found is whole and notes == []


def test_ranks_without_groups_are_of_the_only_group_of_the_others() -> None:
    rows = [torch(r, 10, "0", "0-3", seq=1) for r in (0, 1)]
    rows += [nsys(r, 12, None, 0, None, facts="cpu_record") for r in (2, 3)]
    found, notes = unify(table(*rows), FORMATS)
    assert notes == [
        "ranks 2-3 tell no groups: their collectives are assumed to be of group 0, the only one of the others"
    ]
    matched = match(found, found["start"].to_numpy() * 0, 4)
    assert matched.full.tolist() == [True] and matched.groups[0].level == "K4"
    apart = [r | {"start": r["start"] + (1000 if r["rank"] > 1 else 0)} for r in rows]
    unmatched = match(unify(table(*apart), FORMATS)[0], found["start"].to_numpy() * 0, 4)
    assert not unmatched.full.any()  # one host, and they do not overlap


def test_ranks_without_groups_beside_several_are_not_matched() -> None:
    rows = [torch(0, 10, "0", "0-3"), torch(0, 50, "tp", "0-1"), nsys(2, 10, None, 0)]
    whole = table(*rows)
    found, notes = unify(whole, {0: "kineto", 2: "nsight"})
    assert found is whole and len(notes) == 1
    assert "rank 2 tells no groups, the others several: not matched across formats; export with" in notes[0]


def test_collectives_of_the_host_are_left_alone() -> None:
    rows = [
        torch(0, 10, "0", "0-3"),
        torch(0, 50, "gloo", "0-3", device=-1),
        nsys(2, 10, None, 0, kind="allreduce", device=-1),
    ]
    whole = table(*rows)
    assert unify(whole, {0: "kineto", 2: "nsight"}) == (whole, [])
