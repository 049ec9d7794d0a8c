"""`holdfast fit --task clip`: fine-tune a vision-language model, report by group, show where it looks.

It is `holdfast fit` for two-tower models: the same run directories, the same choice of the epoch, the same report. Data
sets and methods are those of `holdfast.multimodal`; an audit's verdicts can say which attribute is spurious.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from holdfast import report, training
from holdfast.cli.common.arguments import value_of, with_config
from holdfast.cli.common.clip import DEFAULT_CLIP_DATA, FOR_CLIP, load_subject
from holdfast.cli.common.processes import launched
from holdfast.cli.common.progress import TrainingProgress
from holdfast.cli.common.runs import continued, print_config, run_place, says_how_to_continue
from holdfast.cli.common.sections import (
    Section,
    check_configuration,
    configuration,
    data_section,
    named_data,
    parse_sections,
)
from holdfast.data.catalog import data_root
from holdfast.errors import UNHEALTHY, ConfigError
from holdfast.methods import CLIP_METHODS
from holdfast.multimodal.backends import Trained, TwoTowerModel
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.training.settings import Training

if TYPE_CHECKING:
    from holdfast.data import Splits
    from holdfast.multimodal.tasks.task import ClipData, ClipTask
    from holdfast.training import FitResult, GroupReport, Policy, Run

_PROBES = ("linear-probe", "dfr-train", "dfr-val")
_PROGRAM = "holdfast fit --task clip"
_PREAMBLE = """Fine-tune a vision-language model and report how every group fares, and where the model looks.

Methods: {methods}. The last three train a linear layer on frozen embeddings.

Data sets: {data}; or a folder with images and a metadata.csv.

Towers: shapes and emoji (made here, a minute or two), open_clip:RN50:openai and the like, or CLIP of the transformers
library by its name or folder.

Below are the options of all runs, then those of the chosen data set and method. Where nobody labelled the spurious
attribute, audit first: `--audit FOLDER` takes the words that were called spurious and what was seen in the images.

Examples: `holdfast fit --task clip`; `holdfast fit --task clip --method group-dro`; `holdfast fit --task clip
--spurious-aware.form release --spurious-aware.lambda-vs 1 --spurious-aware.lambda-ls 0`; `holdfast fit --task clip
--audit audits/shapes-multimodal`."""


@dataclass(frozen=True)
class ClipChoices:
    """What to fine-tune on, with what, and where to write.

    Attributes:
        task: says that a vision-language model is tuned.
        data: a data set's name, or a folder with images and a metadata.csv.
        method: a method's name.
        tower: the model; the data set's usual one by default.
        trained: which of its parameters.
        scale: what cosines are multiplied by at the start; as the tower has it by default.
        audit: the folder of an audit whose verdicts say what is spurious, instead of the data set's attribute.
        templates: a file with sentences to fill with names, one per line; the task's own by default.
        explained: images of each group that AIoU is computed on; 0 leaves explanations out.
        cache: compute the features of frozen encoders once.
        data_root: where data sets and towers live; HOLDFAST_DATA or ~/.cache/holdfast/data by default.
        out: the run directory; runs/DATA-METHOD-sSEED by default.
        strict: end with exit code 3 if a health check of the result fails.
        reference: a finished run of plain training on the same data; the result is also judged against it.
        resume: continue the run in this directory, with the options it was started with.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    task: Literal["clip"] = "clip"
    data: str = DEFAULT_CLIP_DATA
    method: str = "spurious-aware"
    tower: str | None = None
    trained: Trained = "projection"
    scale: float | None = None
    audit: Path | None = None
    templates: Path | None = None
    explained: int = 60
    cache: bool = True
    data_root: Path | None = None
    out: Path | None = None
    strict: bool = False
    reference: Path | None = None
    resume: Path | None = None
    config: Path | None = None
    print_config: bool = False


@dataclass(frozen=True)
class ClipOptions:
    """Everything that was asked for: what, how long and how fast, the data set and the method with their options."""

    choices: ClipChoices
    training: Training
    data: ClipData
    method: Policy

    def config(self) -> dict[str, Any]:
        """What determines the run, as a configuration file holds it."""
        sections = {self.data.name: self.data, self.choices.method: self.method}
        return configuration(self.choices, self.training, sections=sections)


def main(arguments: list[str]) -> int:
    """Run the command."""
    options, run = parse_clip(arguments), None
    if launched() > 1:
        raise ConfigError(
            f"a launcher has started {launched()} processes and `fit --task clip` trains with one; start it by itself"
        )
    if options.choices.print_config:
        print_config(options.config())
        return 0
    if options.choices.resume is not None:
        options, run = continued(
            options.choices.resume, arguments, parse_clip, "clip", free=("checkpoint_seconds", "reference")
        )
    result = tune(options, Console(), run)
    failed = result is not None and result.health.verdict == "failed"
    return UNHEALTHY if options.choices.strict and failed else 0


def tune(options: ClipOptions, console: Console, run: Run | None = None) -> FitResult | None:
    """Fine-tune as `options` say, and show what came out.

    Args:
        options: everything that was asked for.
        console: where to show.
        run: a run to continue; by default a new one is made, once data and tower are known to be good.

    Returns:
        The result; None of ``zero-shot``, which trains nothing.
    """
    from holdfast.cli.common.health import reference_report, show_health
    from holdfast.multimodal.method.baselines import zero_shot

    choices, settings = options.choices, options.training
    reference = None if choices.reference is None else reference_report(choices.reference)
    tower, task = _subject(options, console)
    before = zero_shot(tower, task.wording, task.splits.test, task.splits.train)
    if choices.method == "zero-shot":
        console.print(before.table(f"{choices.data}, zero-shot: test set"))
        return None
    was, explained = copy.deepcopy(tower), choices.explained > 0 and choices.method not in _PROBES
    place = choices.out or run_place(choices.data, choices.method, settings.seed)
    run = run or training.Run.create(place, options.config(), kind="clip")
    title = f"{Path(choices.data).name}, {choices.method}"
    with says_how_to_continue(run, console), TrainingProgress(title, console) as progress:
        result = _train(options, tower, task, run, progress, reference=reference)
    page = report.write_report(run, None if choices.method in _PROBES else task.splits)
    console.print(before.table("zero-shot, before: test set"))
    console.print(result.test.table(f"{choices.data}, {choices.method}: test set"))
    if explained:
        _explain(options, run, task, (was, before), (tower, result.test), console=console)
    show_health(result.health, console)
    console.print(f"Report: [bold]{page}[/]", highlight=False, soft_wrap=True)
    return result


def clip_splits(arguments: Sequence[str], root: Path | None) -> Splits | None:
    """The data of a run, as its report shows them; None where it was on embeddings.

    Args:
        arguments: that say the run's options.
        root: the data root; the run's own by default.
    """
    options = parse_clip(arguments)
    if options.choices.method in _PROBES:
        return None
    if root is not None:
        options = replace(options, choices=replace(options.choices, data_root=root))
    return _subject(options, Console())[1].splits


def _subject(options: ClipOptions, console: Console) -> tuple[TwoTowerModel, ClipTask]:
    """The tower, and the task with the attribute that an audit's verdicts say."""
    choices, settings = options.choices, options.training
    tower, task = load_subject(
        options.data,
        choices.tower,
        data_root(choices.data_root),
        choices.templates,
        seed=settings.seed,
        device=settings.device,
        console=console,
    )
    if choices.audit is not None:
        from holdfast.multimodal.audit.reviews import SEEN, check_audited, mitigated, read_review, spurious_words
        from holdfast.multimodal.audit.task_detections import read_detections

        check_audited(choices.audit, task)
        words = spurious_words(read_review(choices.audit))
        task = mitigated(task, words, read_detections(choices.audit / SEEN, task))
    return tower, task


def _train(
    options: ClipOptions,
    tower: TwoTowerModel,
    task: ClipTask,
    run: Run,
    progress: TrainingProgress,
    *,
    reference: GroupReport | None,
) -> FitResult:
    from holdfast.multimodal.method.baselines import linear_probe, probe_splits
    from holdfast.multimodal.method.training import fine_tune

    choices, settings = options.choices, options.training
    if choices.method in _PROBES:
        features = probe_splits(tower, task.splits)
        layer = linear_probe(features, settings.seed)
        return training.fit(
            layer, features, options.method, settings, run=run, listeners=[progress], reference=reference
        )
    return fine_tune(
        tower,
        task.splits,
        task.wording,
        options.method,
        settings,
        trained=choices.trained,
        scale=choices.scale,
        cache=choices.cache,
        run=run,
        listeners=[progress],
        reference=reference,
    )


def _explain(
    options: ClipOptions,
    run: Run,
    task: ClipTask,
    before: tuple[TwoTowerModel, GroupReport],
    after: tuple[TwoTowerModel, GroupReport],
    *,
    console: Console,
) -> None:
    """AIoU before and after, and a page with the maps."""
    from holdfast.multimodal.tasks.task import explanation_score
    from holdfast.report.pages.before_after import looked_at, shown_places, write_before_after

    seed, places = options.training.seed, shown_places(task, seed=options.training.seed)
    looked = []
    for tower, scores in (before, after):
        score = None
        if "test" in task.regions:
            score = explanation_score(tower, task, scores, per_group=options.choices.explained, seed=seed)
        looked.append(looked_at(tower, task, scores, score, places))
    was, now = looked
    if was.score is not None and now.score is not None:
        console.print(
            f"AIoU, mean over groups: {was.score.average:.3f} before, {now.score.average:.3f} after; of the worst "
            f"group {was.score.worst:.3f} and {now.score.worst:.3f}.",
            highlight=False,
        )
    page = write_before_after(
        run.path / "explanations.html",
        was,
        now,
        task.splits.test,
        places=places,
        preprocessing=after[0].preprocessing,
        name=Path(options.choices.data).name,
        about=f"{options.choices.method}, seed {seed}",
        facts={"run": run.path.name, "images explained per group": options.choices.explained, "seed": seed},
    )
    console.print(f"Explanations: [bold]{page}[/]", highlight=False, soft_wrap=True)


def parse_clip(arguments: Sequence[str]) -> ClipOptions:
    """Options of `fit --task clip`, from the command line and the configuration file it names.

    Raises:
        ConfigError: if a file, a key of it, a data set or a method is unknown.
    """
    typed, settings, file = with_config(arguments)
    resumed = value_of("resume", typed)
    if resumed is not None and file is None:
        return parse_clip([*arguments, "--config", str(Path(resumed) / "config.yaml")])
    method = value_of("method", typed) or ClipChoices.method
    policy = CLIP_METHODS.find(method)
    data_class, folder = named_data(value_of("data", typed) or DEFAULT_CLIP_DATA, CLIP_DATA, FOR_CLIP)
    recipe: dict[str, Any] = dict(data_class.recipe)
    sections = {
        "data": data_section(data_class, folder),
        "choices": Section(ClipChoices, ClipChoices),
        "training": Section(Training, partial(Training, **recipe)),
        "method": Section(policy, policy, method),
    }
    if settings:
        check_configuration(settings, (ClipChoices, Training), {data_class.name: data_class, method: policy}, file)
    about = _PREAMBLE.format(methods=", ".join(CLIP_METHODS), data=", ".join(CLIP_DATA))
    return ClipOptions(**parse_sections(typed, sections, program=_PROGRAM, about=about))
