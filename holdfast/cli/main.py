"""`holdfast COMMAND`: finds the command, runs it, and turns the library's errors into one sentence.

A command imports what it needs when it needs it, so that help pages and mistakes in options are answered at once.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module

import holdfast
from holdfast.errors import EXIT_CODE, HoldfastError, Interrupted, nearest
from holdfast.primitives.memory import keep_freed_memory

#: What each command is for, and the module whose `main(arguments)` runs it; imported only when it is called.
COMMANDS = {
    "demo": ("See plain training fail on a group, and the repair, on data that comes with the package.", "demo"),
    "fit": ("Train a model and report how every group fares.", "fit"),
    "sweep": ("Compare methods fairly: the same trials and seeds for each, and plain training.", "sweep.command"),
    "federate": (
        "Simulate a federation, with attacks and personal models, and report on every client.",
        "federation.federate",
    ),
    "federation": (
        "A federation on several machines: create it, join it with your own data, run it, watch it.",
        "federation.command",
    ),
    "predict": ("Predict with a run's model: a table by example, and how every group fares.", "predict"),
    "evaluate": ("Evaluate predictions by group, any model's or a run's: any metric, a page and a table.", "evaluate"),
    "export": ("Export a run's model: as safetensors, as a torch.export program, or as ONNX.", "export"),
    "audit": ("Inspect data and models: groups made by a shortcut, poisons, what CLIP relies on.", "audit.audit"),
    "select": ("Choose the part of the data that is worth fine-tuning a language model on.", "select.select"),
    "data": ("List data sets, describe one, fetch its files.", "data"),
    "runs": ("List runs, compare them.", "runs"),
    "report": ("Write a run's HTML page (again).", "report"),
    "reproduce": ("Run a paper's experiment and print its numbers beside ours.", "reproduce"),
}

#: What the text of a traceback begins with.
_TRACEBACK = "Traceback (most recent call last)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command and its options; the process's own by default.

    Returns:
        The exit code: 0 done, 1 done but something failed on the way, 2 a mistake in what was asked for, 3 done
        but the result should not be used (only with ``--strict``), 75 a signal
        asked for the end and the state is saved (the printed command continues it), 130 stopped by Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        _help()
        return 0
    if given[0] in ("-V", "--version"):
        sys.stdout.write(f"holdfast {holdfast.__version__}\n")
        return 0
    if given[0] not in COMMANDS:
        _print_error(f"there is no command {given[0]!r}{nearest(given[0], COMMANDS)}")
        return 2
    with _nothing_to_collect() if arguments is None else nullcontext():
        module = import_module(f"holdfast.cli.commands.{COMMANDS[given[0]][1]}")
    keep_freed_memory()
    return _exit_code(module.main, given[1:])


def _exit_code(command: Callable[[list[str]], int], arguments: list[str]) -> int:
    """What a command ends with; its errors are told in a sentence."""
    try:
        return command(arguments)
    except BrokenPipeError:  # who read what is printed has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or flushing it at the end fails again
        return 1
    except (HoldfastError, OSError) as error:
        if not isinstance(error, HoldfastError) and error.strerror is None:
            raise
        _print_error(_sentence(error))
        if _TRACEBACK in str(error.__cause__):  # of a user's code in a worker: where it went wrong
            sys.stderr.write(f"{error.__cause__}\n")
        return 2
    except KeyboardInterrupt:
        _print_error("stopped")
        return 130
    except Interrupted as asked:
        _print_error(str(asked))
        return EXIT_CODE


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Imports leave no garbage, but the collector walks through all that they make, again and again: keep it away.

    Only for a process of our own: what there is at the end is never looked at again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _sentence(error: Exception) -> str:
    """What to tell the user; the system's own refusals (a full disk, a folder that may not be read) are told too."""
    if not isinstance(error, OSError) or isinstance(error, HoldfastError):
        return str(error)
    name = "a file" if error.filename is None else str(error.filename)
    if error.errno == errno.ENAMETOOLONG:
        return f"{name[:60]}... is too long for the name of a file; give a shorter one"
    return str(HoldfastError(f"{name} can't be read or written ({error.strerror}); see to it and try again"))


def _print_error(sentence: str) -> None:
    from rich.console import Console

    errors = Console(stderr=True, soft_wrap=True)
    errors.print("[red]holdfast:[/]", end=" ")
    errors.print(sentence, markup=False, highlight=False)


def _help() -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        "[bold]holdfast[/]: training that holds up for every group and every client, under attack, on a fraction of "
        "the data.\n"
    )
    table = Table(box=None, show_header=False, padding=(0, 2))
    for name, (summary, _) in COMMANDS.items():
        table.add_row(f"[bold]holdfast {name}[/]", summary)
    console.print(table)
    console.print("\n[bold]holdfast COMMAND --help[/] shows a command's options. Start with [bold]holdfast demo[/].")


if __name__ == "__main__":
    sys.exit(main())
