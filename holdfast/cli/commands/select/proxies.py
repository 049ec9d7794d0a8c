"""The small model of a selection: how it is trained, by the user's word or the data's size, what it costs, and bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from holdfast.cli.commands.select.options import SCRATCH, Select
from holdfast.data.readers.instructions import Instructions
from holdfast.finetuning import (
    FineTuningSettings,
    LanguageModel,
    Template,
    load_language_model,
    resolve_budget,
    small_language_model,
    with_lora,
)
from holdfast.finetuning.estimates import Estimate
from holdfast.finetuning.language_models.fine_tuning import Progress
from holdfast.finetuning.suggestions import Suggestions, suggest
from holdfast.models.devices import best_device, find_device
from holdfast.report.html.markup import duration
from holdfast.training.ranks import Ranks, own_device

_RATE_FROM_SCRATCH, _RATE_OF_LORA = 2e-3, 2e-4
_DOING = {"training": "proxy, steps", "recording": "losses, examples"}


@dataclass(frozen=True, eq=False)
class ProxyPlan:
    """How the proxy is trained and looked at.

    Attributes:
        options: as the user said.
        suggested: what the size of the data suggests.
        settings: of the training.
        trained: on so many random examples; all where it is None.
        points: of a curve, where the steps between them aren't given.
        clusters: of each source.
    """

    options: Select
    suggested: Suggestions
    settings: FineTuningSettings
    trained: int | None
    points: int | None
    clusters: int

    @classmethod
    def of(cls, options: Select, data: Instructions, budget: int) -> ProxyPlan:
        """What was asked for, and for the rest what the size of the data suggests."""
        some = options.proxy_examples
        trained = None if some is None else resolve_budget(some, len(data), "--proxy-examples")
        suggested = suggest(
            len(data),
            budget,
            sources=len(data.source_names) if options.by_source else 1,
            trained=trained,
            epochs=options.epochs,
            batch_size=options.batch_size,
        )
        usual = _RATE_FROM_SCRATCH if options.proxy == SCRATCH else FineTuningSettings.learning_rate
        usual = usual if options.lora is None or options.proxy == SCRATCH else _RATE_OF_LORA
        settings = FineTuningSettings(
            suggested.epochs.value,
            None,
            suggested.batch_size.value,
            usual if options.learning_rate is None else options.learning_rate,
            most_tokens=options.micro_batch or FineTuningSettings.most_tokens,
            precision=options.precision,
            recompute=options.recompute,
            seed=options.seed,
        )
        points = None if options.every is not None else options.points or suggested.points.value
        return cls(options, suggested, settings, trained, points, options.clusters or suggested.clusters.value)

    def say(self, console: Console) -> None:
        """Print the settings that follow from the size of the data, with their reasons."""
        by_size = {"clusters of each source": self.suggested.clusters} if self.options.clusters is None else {}
        if self.options.trajectories is None:
            chosen = {"epochs": self.options.epochs, "batch_size": self.options.batch_size}
            named = {"epochs": self.suggested.epochs, "batch_size": self.suggested.batch_size}
            by_size |= {name.replace("_", " "): named[name] for name, given in chosen.items() if given is None}
            if self.options.every is None and self.options.points is None and self.options.method == "s2l":
                by_size["points of a curve"] = self.suggested.points
        if self.options.method != "s2l":
            by_size.pop("clusters of each source", None)
        if by_size:
            told = "; ".join(f"{name} {one.value:,} ({one.reason})" for name, one in by_size.items())
            console.print(escape(f"By the size of the data: {told}."), highlight=False, soft_wrap=True)

    def proxy(self, data: Instructions, ranks: Ranks) -> LanguageModel:
        """The model with its initial weights, on the device that this process computes on."""
        options = self.options
        device = best_device() if options.device is None else find_device(options.device)
        if options.proxy == SCRATCH:
            template = Template.named(options.template, None)
            texts = (piece.text for chat in data.chats for piece in template.pieces(chat, None))
            proxy = small_language_model(texts, longest=options.max_length, seed=options.seed)
        else:
            proxy = ranks.main_first(lambda: load_language_model(options.proxy, four_bit=options.four_bit))
        if options.lora is not None:
            proxy = with_lora(proxy, rank=options.lora, seed=options.seed)
        proxy.model.to(own_device(device, ranks))
        return proxy


def say_cost(cost: Estimate, console: Console) -> None:
    """Print how long it will take and how much memory it needs, before it begins."""
    parts = [f"training the proxy takes about {duration(cost.training)}"]
    if cost.recording:
        parts.append(f"recording its losses {duration(cost.recording)}")
    told = f"Estimate: {', '.join(parts)}; {_bytes(cost.memory)} of memory, {_bytes(cost.available)} are free; "
    told += f"passes have {cost.most_tokens:,} tokens."
    if not cost.fits:
        told += " It may not fit: --lora 16, --recompute, a smaller --max-length or a smaller --proxy need less."
    console.print(escape(told), highlight=False, soft_wrap=True)


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


@contextmanager
def bars(console: Console) -> Iterator[Callable[[Progress], None]]:
    """A bar for the training and one for the recording in between."""
    bar = Bar(
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
    )
    tasks = {doing: bar.add_task(title, total=None, loss="", visible=False) for doing, title in _DOING.items()}

    def progress(state: Progress) -> None:
        loss = "" if state.loss is None else f"loss {state.loss:.3f}"
        bar.update(tasks[state.doing], completed=state.done, total=state.total, loss=loss, visible=True)

    with bar:
        yield progress
