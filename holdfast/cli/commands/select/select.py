"""`holdfast select`: choose the part of the data that is worth fine-tuning on."""

from __future__ import annotations

from holdfast.finetuning.selection.names import METHODS


def main(arguments: list[str]) -> int:
    """Run the command; alone it shows its help. The method may be the first word."""
    from holdfast.cli.commands.select.options import parse_select
    from holdfast.cli.common.processes import check_count, joined_processes, launch, launched
    from holdfast.cli.common.runs import print_config
    from holdfast.errors import UNHEALTHY

    words = list(arguments) or ["--help"]
    if words[0] in METHODS:
        words = ["--method", *words]
    options = parse_select(words)
    if options.print_config:
        print_config(options.stored())
        return 0
    check_count(options.processes)
    if options.processes > 1 and launched() == 1:
        return launch(options.processes, ["select", *words])
    from holdfast.cli.commands.select.choosing import choose_and_write

    with joined_processes(options.device or "auto") as ranks:
        health = choose_and_write(options, words, ranks)
    return UNHEALTHY if options.strict and health is not None and health.verdict == "failed" else 0
