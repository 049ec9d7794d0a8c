"""`holdfast audit`: look into data and models before training in earnest; each audit leaves a page to look at."""

from __future__ import annotations

from holdfast.cli.common.subcommands import run_subcommand


def groups(arguments: list[str]) -> None:
    """The clusters that SPARE finds in each class without group labels: do they show a shortcut?"""
    from holdfast.cli.commands.audit.groups import audit_groups

    audit_groups(arguments)


def poison(arguments: list[str]) -> None:
    """The examples whose gradients stand alone while a network learns: are they poisons?"""
    from holdfast.cli.commands.audit.poison import audit_poison

    audit_poison(arguments)


def arrays(arguments: list[str]) -> None:
    """Wrong labels, groups, near duplicates and outliers in the outputs of any model, without training."""
    from holdfast.cli.commands.audit.arrays import audit_arrays

    audit_arrays(arguments)


def multimodal(arguments: list[str]) -> None:
    """The visible things that a vision-language model recognises classes by: are they shortcuts?"""
    from holdfast.cli.commands.audit.multimodal import audit_multimodal

    audit_multimodal(arguments)


def verdict(arguments: list[str]) -> None:
    """Write down whether an attribute that `audit multimodal` found is spurious."""
    from holdfast.cli.commands.audit.verdict import audit_verdict

    audit_verdict(arguments)


#: What can be audited; the first line of each says what one sees.
AUDITS = {"groups": groups, "poison": poison, "arrays": arrays, "multimodal": multimodal, "verdict": verdict}


def main(arguments: list[str]) -> int:
    """Run the command; alone it lists what can be audited."""
    about = "Inspect data and models; each audit writes a page."
    run_subcommand(AUDITS, arguments, program="holdfast audit", about=about)
    return 0
