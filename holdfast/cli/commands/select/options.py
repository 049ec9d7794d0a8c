"""The options of `select s2l`, from the command line and the configuration files it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import tyro

from holdfast import training
from holdfast.cli.common.arguments import as_arguments, check_keys, configurable, refuse_changes, with_config
from holdfast.errors import ConfigError
from holdfast.files import plain_values
from holdfast.primitives.lloyd import Engine, Start

PROGRAM = "holdfast select s2l"
#: The proxy that is made on the spot.
SCRATCH = "scratch"
#: Options that say how the proxy is trained, and nothing where its curves are there already.
_OF_PROXY = ("proxy", "template", "max_length", "epochs", "batch_size", "learning_rate", "every", "proxy_examples")
#: What numbers must be at least.
_LEAST = {"clusters": 1, "smallest": 0, "max_length": 2, "epochs": 1, "batch_size": 1, "every": 1}
_PREAMBLE = """Choose fine-tuning data for a language model by the loss curves of a small one (S2L).

Fine-tunes a small proxy once, records its loss on every example along the way, clusters the curves within each source,
and takes equally many examples of every cluster. What is left behind: subset.jsonl (or .json, .parquet, as the data
is), clusters.parquet and trajectories.parquet by example id, and report.html with texts of every cluster.

Data: a .jsonl, .json or .parquet file, or the name of a data set on the hub. Alpaca, MathInstruct, Dolly,
prompt/response, chats (OpenAI's, ShareGPT's; every answer of the assistant's is learned), preferences (the chosen
response) and plain text are understood; name the columns where yours are called otherwise.

Proxy: a name on the hub, a local folder, a .gguf file, or `scratch`: a small GPT-NeoX with a tokenizer learned from the
data, which needs no network.

Examples: `holdfast select s2l --data train.jsonl --budget 50%`;
`holdfast select s2l --data TIGER-Lab/MathInstruct --budget 30000`;
`holdfast select s2l --data train.jsonl --trajectories selections/train-s2l-s0/trajectories.parquet --budget 10%` (no
training); `holdfast select s2l --resume selections/train-s2l-s0`;
`accelerate launch --num_processes 4 -m holdfast.cli.main select s2l --data train.jsonl --out half` (several GPUs)."""


@dataclass(frozen=True)
class S2l:
    """What to choose from, how, and where to write.

    Attributes:
        data: a .jsonl, .json or .parquet file, or a data set on the hub.
        budget: how many examples to choose, or a percentage.
        proxy: the small model: a name on the hub, a folder, a .gguf file, or `scratch`.
        clusters: clusters of each source; half its examples where those are fewer.
        by_source: share the budget among sources first, and cluster within each.
        smallest: smaller clusters are only drawn from when others don't suffice.
        prompt_column: the prompts' column, by its usual names where omitted.
        response_column: the responses' column.
        source_column: the sources' column; by default source, dataset, category, task or the like, if its values recur.
        split: of a hub's data set.
        template: instruction, alpaca (with its preamble), report, plain, chat (the tokenizer's own), auto (chat or else
            instruction), or a text with {prompt}.
        max_length: examples are cut to so many tokens.
        epochs: passes of the proxy over the data.
        batch_size: examples of an optimizer step.
        learning_rate: of the proxy at its peak; by default 2e-5, or 2e-3 from scratch.
        every: steps between two recorded losses; 500 by default, or a twelfth of the training where that is less.
        proxy_examples: train the proxy on so many random examples (or a percentage); losses of all are recorded.
        trajectories: choose by these recorded losses instead of training a proxy.
        start: where k-means starts: at examples far from one another, or at random ones as published.
        skip_bad: pass over rows that can't be read instead of stopping at the first; they are counted and named.
        engine: of k-means; auto is faiss where it is installed.
        seed: names every random stream.
        device: where to compute, such as cpu, cuda:1 or auto; a GPU if there is one.
        out: where everything goes; selections/DATA-s2l-sSEED by default.
        resume: continue the selection in this directory, with the options it was started with.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    data: str = ""
    budget: str = "50%"
    proxy: str = "EleutherAI/pythia-70m-deduped"
    clusters: int = 100
    by_source: bool = True
    smallest: int = 3
    prompt_column: str | None = None
    response_column: str | None = None
    source_column: str | None = None
    split: str = "train"
    template: str = "auto"
    max_length: int = 512
    epochs: int = 3
    batch_size: int = 128
    learning_rate: float | None = None
    every: int | None = None
    proxy_examples: str | None = None
    trajectories: Path | None = None
    start: Start = "k-means++"
    skip_bad: bool = False
    engine: Engine = "auto"
    seed: int = 0
    device: str | None = None
    out: Path | None = None
    resume: Path | None = None
    config: Path | None = None
    print_config: bool = False

    def stored(self) -> dict[str, Any]:
        """What determines the selection, as a configuration file holds it."""
        names = configurable(S2l)
        return dict(plain_values({name: value for name, value in asdict(self).items() if name in names}))

    def located(self) -> S2l:
        """The same with whole paths, which mean the same from any folder; names on the hub stay."""
        return replace(
            self,
            data=_whole(self.data) if self.data else "",
            proxy=self.proxy if self.proxy == SCRATCH else _whole(self.proxy),
            trajectories=self.trajectories and Path(_whole(str(self.trajectories))),
        )

    def changed(self) -> dict[str, Any]:
        """The stored options that aren't the default."""
        defaults = {field.name: field.default for field in fields(S2l)}
        return {name: value for name, value in self.stored().items() if value != defaults[name]}

    def again(self, trajectories: Path, budget: str) -> list[str]:
        """The words that choose another number by curves that are recorded, all else as it was."""
        left_out = (*_OF_PROXY, "device", "data", "trajectories", "budget")
        same = {name.replace("_", "-"): value for name, value in self.changed().items() if name not in left_out}
        return as_arguments({"data": self.data, "trajectories": trajectories, **same, "budget": budget})


def parse_s2l(arguments: Sequence[str]) -> S2l:
    """Options of `select s2l` from the command line and the configuration file it names.

    Raises:
        ConfigError: if a key of the file is unknown, no data is named, or options contradict each other.
    """
    words, settings, file = with_config(arguments)
    check_keys(settings, configurable(S2l), {}, file)
    options = tyro.cli(S2l, args=words, prog=PROGRAM, description=_PREAMBLE)
    if options.resume is not None:
        if training.Run.open(options.resume).status == "finished":
            raise ConfigError(
                f"the selection at {options.resume} is finished; its page is {options.resume / 'report.html'}"
            )
        stored = parse_s2l(["--config", str(training.Run.open(options.resume).path / "config.yaml")])
        again = tyro.cli(S2l, args=[*as_arguments(stored.stored()), *arguments], prog=PROGRAM)
        refuse_changes(stored.located().stored(), again.located().stored())
        return replace(stored, resume=options.resume)
    if not options.data and not options.print_config:
        raise ConfigError("there is nothing to choose from; give --data FILE, or the name of a data set on the hub")
    if options.trajectories is not None:
        given = [name for name in _OF_PROXY if name in options.changed()]
        if given:
            names = " and ".join(_option(name) for name in given)
            raise ConfigError(f"--trajectories are recorded already, so {names} would change nothing; leave that out")
    _check_numbers(options)
    return options


def _check_numbers(options: S2l) -> None:
    """Refuse at once what would fail, or mean something else, once a proxy is trained."""
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"{_option(name)} is {value}; give at least {least}")
    if options.learning_rate is not None and not options.learning_rate > 0:
        raise ConfigError(f"--learning-rate is {options.learning_rate}; give a number above 0, or leave it out")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _whole(name: str) -> str:
    """The path from the root where there is such a file; a link keeps its own name, whose ending says what it is."""
    path = Path(name)
    return str(path.parent.resolve() / path.name) if path.exists() else name
