"""`holdfast fit`: train, report by group, leave a run directory behind."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import yaml
from rich.console import Console

from holdfast.cli.common.arguments import free_place, read_config, refuse_changes, value_of
from holdfast.cli.common.options import FitOptions, parse
from holdfast.cli.common.progress import TrainingProgress
from holdfast.data import data_root
from holdfast.errors import ConfigError, nearest
from holdfast.integrations.trackers.tracker import trackers
from holdfast.models import build
from holdfast.report import write_report
from holdfast.training import FitResult, Run, fit
from holdfast.training.evaluation.criteria import criterion_uses_groups
from holdfast.training.method import as_method

TASKS = ("classify", "clip")


def main(arguments: list[str]) -> int:
    """Run the command."""
    if task_of(arguments) == "clip":
        from holdfast.cli.commands.fit_clip import main as fit_clip

        return fit_clip(arguments)
    options = parse(arguments)
    console = Console()
    if options.choices.print_config:
        console.print(yaml.safe_dump(options.config(), sort_keys=False), end="", highlight=False, soft_wrap=True)
        return 0
    if options.choices.resume is None:
        train(options, console)
    else:
        train(*_resumed(options, arguments, console))
    return 0


def task_of(arguments: list[str]) -> str:
    """What is trained, as the command line, the configuration file or the run that it names say: classify or clip."""
    resumed, file = value_of("resume", arguments), value_of("config", arguments)
    if resumed is not None:
        file = str(Path(resumed) / "config.yaml")
    said = None if file is None or not Path(file).exists() else read_config(Path(file)).get("task")
    task = value_of("task", arguments) or said or TASKS[0]
    if task not in TASKS:
        raise ConfigError(f"there is no task {task!r}{nearest(task, TASKS)}")
    return str(task)


def train(options: FitOptions, console: Console, run: Run | None = None) -> FitResult:
    """Train as `options` say and show what came out.

    Args:
        options: everything that was asked for.
        console: where to show.
        run: a run to continue; by default a new one is made, once data and model are known to be good.

    Returns:
        The result.
    """
    choices, settings = options.choices, options.training
    method = as_method(options.policy)
    method.policy.validate(settings.planned)
    root = data_root(choices.data_root)
    splits = options.data.load(root)
    train_set = splits.train
    model = build(
        choices.model,
        train_set.input_shape,
        train_set.n_classes,
        seed=settings.seed,
        weights=choices.weights,
        root=root,
    )
    if run is None:
        run = Run.create(choices.out or _free_place(options), options.config())
    listeners = trackers(choices.track, run)
    try:
        with TrainingProgress(f"{Path(choices.data).name}, {choices.method}", console) as progress:
            if run.has_checkpoint():
                done = [record for record in run.metrics() if record["event"] == "epoch"]
                progress.resume(settings.epochs + method.policy.warmup_epochs, len(done))
            result = fit(model, splits, method, settings, run=run, listeners=[progress, *listeners])
    except KeyboardInterrupt:
        console.print(f"stopped; continue with: [bold]holdfast fit --resume {shlex.quote(str(run.path))}[/]")
        raise
    page = write_report(run, splits)
    _show(result, options, page, console)
    return result


def _show(result: FitResult, options: FitOptions, page: Path, console: Console) -> None:
    console.print(result.test.table(f"{options.choices.data}, {options.choices.method}: test set"))
    reads_groups = criterion_uses_groups(options.training.select_by) and result.validation.grouping != "classes"
    used = ", which uses validation group labels" if reads_groups else ""
    console.print(
        f"Weights after epoch {result.best_epoch + 1} of {len(result.history)}, chosen by "
        f"{options.training.select_by} on the validation set{used}.",
        highlight=False,
    )
    console.print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)


def _free_place(options: FitOptions) -> Path:
    """A run directory named after what is run."""
    data = Path(options.choices.data).name
    return free_place("runs", f"{data}-{options.choices.method}-s{options.training.seed}")


def _resumed(options: FitOptions, arguments: list[str], console: Console) -> tuple[FitOptions, Console, Run]:
    assert options.choices.resume is not None
    run = Run.open(options.choices.resume)
    if run.status == "finished":
        raise ConfigError(f"the run at {run.path} is finished; `holdfast report {run.path}` shows it")
    stored = parse(["--config", str(run.path / "config.yaml")])
    asked = parse([*arguments, "--config", str(run.path / "config.yaml")])
    refuse_changes(stored.config(), asked.config())
    return replace(stored, choices=replace(stored.choices, track=options.choices.track)), console, run
