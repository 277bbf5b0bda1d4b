"""Write the reference pages that could drift: tables, command line, documents. ``--check`` only compares."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec

import traceview as tv
from traceview import gate, history, result
from traceview.cli.main import cli
from traceview.result import versus, whatif
from traceview.schema import TABLES
from traceview_reports import terminal

HERE = Path(__file__).parent
CAPTURE_LINES = 24


def tables() -> str:
    """Every declared table with its columns."""
    out = [
        "# Tables",
        "",
        "Written by `traceview analyze --tables DIR` as Parquet; times are int64 nanoseconds. Beside them the tables",
        "of the result: `windows` and `steps` with a column per leaf, `stragglers`, and `collective_classes` (what",
        "`result.collectives()` gives; `collectives` has a row per operation). See [result.md](result.md).",
        "",
    ]
    for table in TABLES.values():
        order = f" Ordered by {', '.join(table.sort)}." if table.sort else ""
        out += [
            f"## {table.name}",
            "",
            f"{table.doc}{order}",
            "",
            "| column | type | unit | meaning |",
            "|---|---|---|---|",
        ]
        for c in table.columns:
            values = f" One of: {', '.join(c.values)}." if c.values else ""
            null = ", null" if c.nullable else ""
            kind = re.sub(r"dictionary<values=string.*", "string", str(c.type))
            out.append(f"| `{c.name}` | {kind}{null} | {c.unit} | {c.doc}.{values} |")
        out.append("")
    return "\n".join(out)


def commands() -> str:
    """The help of every verb, at 90 columns."""
    out = ["# Command line", ""]
    for name in ["", *sorted(cli.commands)]:
        command = cli.commands[name] if name else cli
        context = click.Context(
            command, info_name=f"traceview {name}".strip(), max_content_width=90, terminal_width=90
        )
        out += [f"## traceview {name}".rstrip(), "", "```", command.get_help(context), "```", ""]
    return "\n".join(out)


def results() -> str:
    """Every struct of the result document, from its declaration."""
    head = ["# Result JSON", "", f"Schema `{result.SCHEMA}`. Additions are allowed, renames are not.", ""]
    return "\n".join([*head, *structs_of(result.Result)])


def comparisons() -> str:
    """Every struct of the document that compare and gate write."""
    head = [
        "# Comparison JSON",
        "",
        "What `traceview compare --json` and `traceview gate --json` write: an object with `decision` (a Decision)",
        "and `comparison` (a Comparison); of `traceview history --json`: `trends`, a list of Trend;",
        "of `traceview what-if --json`: a WhatIf. Additions are",
        "allowed, renames are not.",
        "",
    ]
    parts = (versus.Decision, versus.Comparison, gate.Calibration, history.Trend, whatif.WhatIf)
    return "\n".join([*head, *(line for first in parts for line in structs_of(first))])


def structs_of(first: type) -> list[str]:
    """``first`` and the structs that it is made of, each as a table of its keys."""
    structs = list(_made_of(first))
    structs.sort(key=lambda s: (s is not first, s.__module__, inspect.getsourcelines(s)[1]))
    out = []
    for struct in structs:
        doc = inspect.cleandoc(struct.__doc__ or "")
        out += [f"## {struct.__name__}", "", doc, "", "| key | type |", "|---|---|"]
        for field in msgspec.structs.fields(struct):
            kind = str(struct.__annotations__[field.name]).replace("|", "or")
            out.append(f"| `{field.encode_name}` | {kind} |")
        out.append("")
    return out


def _made_of(kind: Any) -> dict[type, None]:
    """The structs in a type, itself included, each once."""
    if not (inspect.isclass(kind) and issubclass(kind, msgspec.Struct)):
        return {s: None for part in get_args(kind) for s in _made_of(part)}
    return {kind: None} | {s: None for part in get_type_hints(kind).values() for s in _made_of(part)}


def readme() -> str:
    """The README with its terminal capture made anew."""
    text = (HERE.parent / "README.md").read_text()
    sample = HERE.parent / "sample_traces" / "slow_rank"
    shown = terminal.render(tv.analyze(sample), width=100)
    capture = "\n".join(line.rstrip() for line in shown.splitlines()[:CAPTURE_LINES])
    return re.sub(r"(?<=```text\n).*?(?=```\n<!-- end of capture)", lambda _: capture + "\n", text, flags=re.DOTALL)


PAGES = {
    "tables.md": tables,
    "cli.md": commands,
    "result.md": results,
    "comparison.md": comparisons,
    "../README.md": readme,
}


def main(argv: list[str]) -> int:
    """Write the pages, or with --check say which are stale (exit 1)."""
    stale = [name for name, make in PAGES.items() if not _same(HERE / name, make())]
    if "--check" in argv:
        for name in stale:
            print(f"docs/{name} is stale: run python docs/generate.py")
        return bool(stale)
    for name in stale:
        (HERE / name).write_text(PAGES[name]())
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
