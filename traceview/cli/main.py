"""The click group, and the one place where errors become exit codes."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import click

from traceview import __version__
from traceview.cli.analyze import analyze
from traceview.cli.compare import compare
from traceview.cli.export import export
from traceview.cli.gate import gate
from traceview.cli.history import history
from traceview.cli.inspect import inspect
from traceview.cli.names import Names
from traceview.cli.streams import give_up, reopen, tolerant
from traceview.cli.whatif import what_if
from traceview.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_UNUSABLE, TraceviewError
from traceview.units import one_line


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="traceview")
def cli() -> None:
    """Where every step's time went, who made the others wait, and what to fix first."""


cli.add_command(analyze)
cli.add_command(compare)
cli.add_command(export)
cli.add_command(gate)
cli.add_command(history)
cli.add_command(inspect)
cli.add_command(what_if)


def run(argv: list[str] | None = None) -> int:
    """Run a command line. click's own exit code 1 would read as FAIL, so its standalone mode is off."""
    reopen()
    tolerant(sys.stdout, sys.stderr)
    names = Names(argv)
    try:
        code = cli.main(args=argv, prog_name="traceview", standalone_mode=False, obj=names)
        names.write_map()
        sys.stdout.flush()
    except click.ClickException as error:
        _say(error, names)
        return EXIT_UNUSABLE
    except (click.Abort, KeyboardInterrupt):
        print("traceview: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except TraceviewError as error:
        print(f"traceview: {names.shown(one_line(error))}", file=sys.stderr)
        return error.exit_code
    except (
        BrokenPipeError,
        SystemExit,
    ):  # click turns a closed pipe (`| head`) into exit(1), which would read as FAIL
        give_up(sys.stdout)
        return EXIT_OK
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            give_up(sys.stdout)
            print("traceview: no space is left on the disk; free some and run again", file=sys.stderr)
            return EXIT_UNUSABLE
        if "--debug" in (argv if argv is not None else sys.argv):
            raise
        text = f"internal error: {type(error).__name__}: {names.shown(one_line(error))} (--debug shows where)"
        print(f"traceview: {text}", file=sys.stderr)
        return EXIT_INTERNAL
    return code if isinstance(code, int) else EXIT_OK


def _say(error: click.ClickException, names: Names) -> None:
    """Wrong usage in one line; a bare ``traceview`` shows the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = context.command_path if context else "traceview"
    text = one_line(error.format_message())
    words = text.split("'")
    if command == "traceview" and len(words) > 1 and Path(words[1]).exists():
        text += f" Did you mean `traceview analyze {words[1]}`?"
    print(f"traceview: {names.shown(text)} See `{command} --help`.", file=sys.stderr)
