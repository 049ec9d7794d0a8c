"""`holdfast federation`: a federation on several machines, from its founding to its report."""

from __future__ import annotations

from holdfast.cli.common.subcommands import run_subcommand


def init(arguments: list[str]) -> None:
    """Create a federation: keys, invitation, proxy, everything that its server needs."""
    from holdfast.cli.commands.federation.init import main as command

    command(arguments)


def admit(arguments: list[str]) -> None:
    """Put a node on the roster, by its public key."""
    from holdfast.cli.commands.federation.admit import main as command

    command(arguments)


def dismiss(arguments: list[str]) -> None:
    """Exclude a node from now on."""
    from holdfast.cli.commands.federation.admit import dismiss_main as command

    command(arguments)


def serve(arguments: list[str]) -> None:
    """Start the SuperLink and the proxy in front of it."""
    from holdfast.cli.commands.federation.serve import main as command

    command(arguments)


def join(arguments: list[str]) -> None:
    """Be a node: read your own data, check it, and take part."""
    from holdfast.cli.commands.federation.join import main as command

    command(arguments)


def run(arguments: list[str]) -> None:
    """Start the rounds, or go on with them."""
    from holdfast.cli.commands.federation.run import main as command

    command(arguments)


def status(arguments: list[str]) -> None:
    """Show rounds, who answers, who is slow, and faults."""
    from holdfast.cli.commands.federation.status import main as command

    command(arguments)


COMMANDS = {
    "init": init,
    "admit": admit,
    "dismiss": dismiss,
    "serve": serve,
    "join": join,
    "run": run,
    "status": status,
}


def main(arguments: list[str]) -> int:
    """Run the command; alone it lists what there is."""
    about = "A federation on several machines; `docs/guides/from-simulation-to-a-federation.md` goes through all of it."
    run_subcommand(COMMANDS, arguments, program="holdfast federation", about=about)
    return 0
