"""`holdfast fit`: train, report by group, leave a run directory behind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import models, report, training
from holdfast.cli.common.arguments import value_of
from holdfast.cli.common.notes import show_notes
from holdfast.cli.common.options import FitOptions, parse
from holdfast.cli.common.processes import check_count, joined_processes, launch, launched
from holdfast.cli.common.runs import continued, print_config, run_place, says_how_to_continue
from holdfast.data.catalog import data_root
from holdfast.errors import UNHEALTHY, ConfigError, nearest
from holdfast.files import read_mapping

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.data import Splits
    from holdfast.training.events import Listener
    from holdfast.training.method import ValidatedMethod
    from holdfast.training.ranks import Ranks

TASKS = ("classify", "clip")


def main(arguments: list[str]) -> int:
    """Run the command."""
    if task_of(arguments) == "clip":
        from holdfast.cli.commands.fit_clip import main as fit_clip

        return fit_clip(arguments)
    options, run = parse(arguments), None
    from rich.console import Console

    if options.choices.print_config:
        print_config(options.config())
        return 0
    check_count(options.choices.processes)
    if options.choices.resume is not None:
        free = ("checkpoint_seconds", "processes", "reference")
        options, run = continued(options.choices.resume, arguments, parse, "fit", free=free)
    if options.auto is not None and max(options.choices.processes, launched()) > 1:
        raise ConfigError(
            "--method auto tries methods in one process; choose with --processes 1, then name the chosen method here"
        )
    if options.choices.processes > 1 and launched() == 1:
        training.validated(options.policy, options.training.planned)
        return launch(options.choices.processes, ["fit", *arguments])
    with joined_processes(options.training.device) as ranks:
        result = train(options, Console(quiet=not ranks.is_main), run, ranks)
    return UNHEALTHY if options.choices.strict and result.health.verdict == "failed" else 0


def task_of(arguments: list[str]) -> str:
    """What is trained, as the command line, the configuration file or the run that it names say: classify or clip."""
    resumed, file = value_of("resume", arguments), value_of("config", arguments)
    if resumed is not None:
        file = str(Path(resumed) / "config.yaml")
    stored = None if file is None or not Path(file).exists() else read_mapping(Path(file)).get("task")
    task = value_of("task", arguments) or stored or TASKS[0]
    if task not in TASKS:
        raise ConfigError(f"there is no task {task!r}{nearest(task, TASKS)}")
    return str(task)


def train(
    options: FitOptions, console: Console, run: training.Run | None = None, ranks: Ranks | None = None
) -> training.FitResult:
    """Train as `options` say and show what came out.

    Args:
        options: everything that was asked for.
        console: where to show.
        run: a run to continue; by default a new one is made, once data and model are known to be good.
        ranks: the processes that train together; the first one writes.

    Returns:
        The result.
    """
    import torch

    from holdfast.cli.common.model_options import show_device, show_model
    from holdfast.cli.common.progress import TrainingProgress
    from holdfast.cli.common.yardstick import is_trained_beside, named_reference, trained_beside
    from holdfast.integrations.trackers.tracker import trackers
    from holdfast.training.interruption import interruptible
    from holdfast.training.ranks import ALONE

    ranks = ranks or ALONE
    choices, settings = options.choices, options.training
    reference = named_reference(choices.reference)
    show_device(settings.device, console)
    method = None if options.auto is not None else training.validated(options.policy, settings.planned)
    if method is not None:
        is_trained_beside(choices.reference, method)  # refuses what makes no sense
    root = data_root(choices.data_root)
    splits = ranks.main_first(lambda: options.data.load(root))
    show_notes(splits.notes, splits.name, console)
    shape, classes = splits.train.input_shape, splits.train.n_classes
    spec = models.ModelSpec(
        choices.model, shape, classes, choices.model_args, settings.seed, choices.weights, choices.head
    )
    model = ranks.main_first(lambda: spec.build(root))
    few = splits.train.inputs.gather(torch.arange(min(2, len(splits.train))))
    show_model(spec, model, few, console, needed_by=choices.method if method and method.policy.needs_head else None)
    # All hear of a place that can't be written to.
    opened = ranks.together(lambda: _opened(run, options, spec, splits) if ranks.is_main else None)
    if method is None:
        method = _chosen(options, spec, splits, opened, console)
    with interruptible() if opened is None else says_how_to_continue(opened, console):
        if is_trained_beside(choices.reference, method):
            reference = trained_beside(options, model, splits, opened, ranks=ranks, console=console)
    if opened is None:
        with interruptible():
            return training.fit(model, splits, method, settings, head=choices.head, reference=reference)
    run, listeners = opened, trackers(choices.track, opened)
    title = f"{Path(choices.data).name}, {choices.method}"
    with says_how_to_continue(run, console), TrainingProgress(title, console) as progress:
        if run.has_checkpoint():
            done = [record for record in run.metrics() if record["event"] == "epoch"]
            progress.resume(settings.epochs + method.policy.warmup_epochs, len(done))
        listening: list[Listener] = [progress, *listeners]
        result = training.fit(
            model, splits, method, settings, run=run, listeners=listening, head=choices.head, reference=reference
        )
    page = report.write_report(run, splits)
    _show(result, options, page, console)
    return result


def _chosen(
    options: FitOptions, spec: models.ModelSpec, splits: Splits, run: training.Run | None, console: Console
) -> ValidatedMethod:
    """The method that ``auto`` chooses, or chose before the run was interrupted."""
    from holdfast.auto import choose, kept_or_chosen
    from holdfast.cli.common.auto import show_choice, show_try
    from holdfast.methods import build_method

    root, settings = data_root(options.choices.data_root), options.training
    choice = kept_or_chosen(
        run,
        lambda: choose(
            lambda: spec.build(root),
            splits,
            settings,
            options.auto,
            head=options.choices.head,
            listener=lambda tried: show_try(tried, console),
        ),
    )
    show_choice(choice, console)
    return training.validated(build_method(choice.method), settings.planned)


def _opened(run: training.Run | None, options: FitOptions, spec: models.ModelSpec, splits: Splits) -> training.Run:
    """The run to continue or a new one, with what its data and its model are."""
    choices = options.choices
    place = choices.out or run_place(choices.data, choices.method, options.training.seed)
    run = run or training.Run.create(place, options.config())
    run.save_spec(spec)
    if splits.schema is not None:
        run.keep_schema(splits.schema.to_json())
    return run


def _show(result: training.FitResult, options: FitOptions, page: Path, console: Console) -> None:
    from holdfast.cli.common.health import show_health, show_reference
    from holdfast.training.evaluation.criteria import criterion_uses_groups

    console.print(result.test.table(f"{Path(options.choices.data).name}, {options.choices.method}: test set"))
    reads_groups = criterion_uses_groups(options.training.select_by) and result.validation.grouping != "classes"
    used = ", which uses validation group labels" if reads_groups else ""
    console.print(
        f"Weights after epoch {result.best_epoch + 1} of {len(result.history)}, chosen by "
        f"{options.training.select_by} on the validation set{used}.",
        highlight=False,
    )
    show_health(result.health, console)
    show_reference(result.reference, console)
    console.print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
