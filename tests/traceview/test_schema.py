"""The declared tables and groups are whole."""

from traceview.schema import GROUPS, LEAVES, PART_TABLES, SUB_LEAVES


def test_every_leaf_is_in_exactly_one_group() -> None:
    listed = [leaf for leaves in GROUPS.values() for leaf in leaves]
    whole = [leaf for leaf in listed if "." not in leaf]
    assert sorted(whole) == sorted(set(LEAVES) - {"comm_wait"})
    assert [leaf for leaf in listed if "." in leaf] == [s for s in SUB_LEAVES if s.startswith("comm_wait.")]


def test_empty_tables_are_valid_and_documented() -> None:
    for table in PART_TABLES:
        table.validate(table.empty(stored=True))
        assert table.doc.endswith(".") and all(c.doc for c in table.columns)
