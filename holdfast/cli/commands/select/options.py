"""The options of `holdfast select`, from the command line and the configuration files it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from holdfast import training
from holdfast.cli.common.arguments import as_arguments, check_keys, configurable, refuse_changes, with_config
from holdfast.errors import ConfigError
from holdfast.files import plain_values
from holdfast.finetuning.selection.names import WITHOUT_MODEL, Method
from holdfast.integrations.trainer_configurations import Trainer
from holdfast.primitives.lloyd_options import Engine, Start

PROGRAM = "holdfast select"
#: The proxy that is made on the spot.
SCRATCH = "scratch"
#: Options that say how the proxy is trained, and nothing where its curves are there already.
_OF_PROXY = (
    "proxy",
    "lora",
    "four_bit",
    "template",
    "max_length",
    "epochs",
    "batch_size",
    "micro_batch",
    "recompute",
    "precision",
    "learning_rate",
    "every",
    "points",
    "proxy_examples",
)
#: Options that only S2L reads, beside those of curves.
_OF_S2L = ("clusters", "smallest", "start", "engine", "trajectories", "every", "points")
#: What numbers must be at least.
_LEAST = {
    "clusters": 1,
    "smallest": 0,
    "max_length": 2,
    "epochs": 1,
    "batch_size": 1,
    "every": 1,
    "points": 1,
    "lora": 1,
    "micro_batch": 1,
}
_PREAMBLE = """Choose fine-tuning data for a language model.

Method s2l (the default) fine-tunes a small proxy once, records its loss on every example along the way, clusters the
curves within each source, and takes equally many examples of every cluster. random, source-balanced (equal shares of
sources, random within each) and longest need no model; least-confidence, middle-perplexity, learnability and
facility-location train the proxy and look at it afterwards.

It writes subset.jsonl (or .json, .parquet, as the data is), ids.txt with the numbers of its rows from 0,
weights.parquet with how many examples each represents, and report.html; s2l also writes clusters.parquet and
trajectories.parquet by example id, and shows texts of every cluster on the page.

Data: a .jsonl, .json or .parquet file, or the name of a data set on the hub. Alpaca, MathInstruct, Dolly,
prompt/response, chats (OpenAI's, ShareGPT's; every answer of the assistant is learned), preferences (the chosen
response) and plain text are recognised; name the columns if yours have other names.

Proxy: a name on the hub, a local folder, a .gguf file, or `scratch`: a small GPT-NeoX with a tokenizer learned from the
data, which needs no network.

Examples: `holdfast select --data train.jsonl --budget 50%`;
`holdfast select --method source-balanced --data TIGER-Lab/MathInstruct --budget 30000`;
`holdfast select --data train.jsonl --trajectories selections/train-s2l-s0/trajectories.parquet --budget 10%` (no
training); `holdfast select --resume selections/train-s2l-s0`;
`holdfast select --data train.jsonl --processes 4 --out half` (several GPUs; `accelerate launch` and torchrun work too).
The method may also be the first word: `holdfast select random --data train.jsonl`."""


@dataclass(frozen=True)
class Select:
    """What to choose from, how, and where to write.

    Attributes:
        method: how to choose.
        data: a .jsonl, .json or .parquet file, or a data set on the hub.
        budget: how many examples to choose, or a percentage.
        proxy: the small model: a name on the hub, a folder, a .gguf file, or `scratch`.
        clusters: clusters of each source, at most half its examples; by the size of the data where omitted, at most
            100.
        by_source: share the budget among sources first, and cluster within each.
        smallest: smaller clusters are only drawn from when others don't suffice.
        prompt_column: the prompts' column, by its usual names where omitted.
        response_column: the responses' column.
        source_column: the sources' column; by default source, dataset, category, task or the like, if its values recur.
        split: of a hub's data set.
        template: instruction, alpaca (with its preamble), report, plain, chat (the tokenizer's own), auto (chat or else
            instruction), or a text with {prompt}.
        max_length: examples are cut to so many tokens.
        lora: train low-rank adapters of this rank instead of all of the proxy's weights.
        four_bit: keep the proxy's weights in four bits (bitsandbytes); only with --lora, which trains others.
        epochs: passes of the proxy over the data; by its size where omitted, at least 3.
        batch_size: examples of an optimizer step; by the size of the data where omitted, at most 128.
        micro_batch: padded tokens of one pass, several of which make a step; as many as fit into memory where omitted.
        recompute: compute blocks again for their gradients: slower, with far less memory (gradient checkpointing).
        precision: fp32 or bf16; bf16 on a GPU that has it where omitted.
        learning_rate: of the proxy at its peak; by default 2e-5, or 2e-3 from scratch.
        every: steps between two recorded losses.
        points: of a loss curve, where `every` is not given; by default as many as take half of the training's time.
        proxy_examples: train the proxy on so many random examples (or a percentage); losses of all are recorded.
        trajectories: choose by these recorded losses instead of training a proxy.
        start: where k-means starts: at examples far from one another, or at random ones as published.
        skip_bad: pass over rows that can't be read instead of stopping at the first; they are counted and named.
        on_disk: leave rows and tokens on disk instead of in memory; auto does so with files from 256 MB on.
        engine: of k-means; auto is faiss where it is installed.
        seed: names every random stream.
        device: where to compute, such as cpu, cuda:1 or auto; a GPU if there is one.
        for_trainer: also write messages.jsonl with weights and a configuration for trl, axolotl or llama-factory.
        processes: how many share the work on this machine.
        strict: end with exit code 3 if a health check of the choice fails.
        out: where everything goes; selections/DATA-s2l-sSEED by default.
        resume: continue the selection in this directory, with the options it was started with.
        config: read options from this file first.
        print_config: print all options as a configuration file, and stop.
    """

    method: Method = "s2l"
    data: str = ""
    budget: str = "50%"
    proxy: str = "EleutherAI/pythia-70m-deduped"
    clusters: int | None = None
    by_source: bool = True
    smallest: int = 3
    prompt_column: str | None = None
    response_column: str | None = None
    source_column: str | None = None
    split: str = "train"
    template: str = "auto"
    max_length: int = 512
    lora: int | None = None
    four_bit: bool = False
    epochs: int | None = None
    batch_size: int | None = None
    micro_batch: int | None = None
    recompute: bool = False
    precision: Literal["fp32", "bf16"] | None = None
    learning_rate: float | None = None
    every: int | None = None
    points: int | None = None
    proxy_examples: str | None = None
    trajectories: Path | None = None
    start: Start = "k-means++"
    skip_bad: bool = False
    on_disk: Literal["auto", "yes", "no"] = "auto"
    engine: Engine = "auto"
    seed: int = 0
    device: str | None = None
    for_trainer: Trainer | None = None
    processes: int = 1
    strict: bool = False
    out: Path | None = None
    resume: Path | None = None
    config: Path | None = None
    print_config: bool = False

    def stored(self) -> dict[str, Any]:
        """What determines the selection, as a configuration file holds it."""
        names = configurable(Select)
        return dict(plain_values({name: value for name, value in asdict(self).items() if name in names}))

    def located(self) -> Select:
        """The same with whole paths, which mean the same from any folder; names on the hub stay."""
        return replace(
            self,
            data=_whole(self.data) if self.data else "",
            proxy=self.proxy if self.proxy == SCRATCH else _whole(self.proxy),
            trajectories=self.trajectories and Path(_whole(str(self.trajectories))),
        )

    def changed(self) -> dict[str, Any]:
        """The stored options that aren't the default."""
        defaults = {field.name: field.default for field in fields(Select)}
        return {name: value for name, value in self.stored().items() if value != defaults[name]}

    def again(self, trajectories: Path, budget: str) -> list[str]:
        """The words that choose another number by curves that are recorded, all else as it was."""
        left_out = (*_OF_PROXY, "device", "processes", "data", "trajectories", "budget")
        same = {name.replace("_", "-"): value for name, value in self.changed().items() if name not in left_out}
        return as_arguments({"data": self.data, "trajectories": trajectories, **same, "budget": budget})


def parse_select(arguments: Sequence[str]) -> Select:
    """Options of `holdfast select` from the command line and the configuration file it names.

    Raises:
        ConfigError: if a key of the file is unknown, no data is named, or options contradict each other.
    """
    words, settings, file = with_config(arguments)
    check_keys(settings, configurable(Select), {}, file)
    options = tyro.cli(Select, args=words, prog=PROGRAM, description=_PREAMBLE)
    if options.resume is not None:
        if training.Run.open(options.resume).status == "finished":
            raise ConfigError(
                f"the selection at {options.resume} is finished; its page is {options.resume / 'report.html'}"
            )
        stored = parse_select(["--config", str(training.Run.open(options.resume).path / "config.yaml")])
        again = tyro.cli(Select, args=[*as_arguments(stored.stored()), *arguments], prog=PROGRAM)
        refuse_changes(stored.located().stored(), again.located().stored())
        return replace(stored, resume=options.resume)
    if not options.data and not options.print_config:
        raise ConfigError("there is nothing to choose from; give --data FILE, or the name of a data set on the hub")
    _check_method(options)
    if options.trajectories is not None:
        given = [name for name in _OF_PROXY if name in options.changed()]
        if given:
            names = " and ".join(_option(name) for name in given)
            raise ConfigError(f"--trajectories are recorded already, so {names} would change nothing; leave that out")
    _check_numbers(options)
    return options


def _check_numbers(options: Select) -> None:
    """Refuse at once what would fail, or mean something else, once a proxy is trained."""
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ConfigError(f"{_option(name)} is {value}; give at least {least}")
    if options.learning_rate is not None and not options.learning_rate > 0:
        raise ConfigError(f"--learning-rate is {options.learning_rate}; give a number above 0, or leave it out")


def _check_method(options: Select) -> None:
    """Refuse options that the method would not look at."""
    unread = () if options.method == "s2l" else _OF_S2L
    if options.method in WITHOUT_MODEL:
        unread = (*unread, *(name for name in _OF_PROXY if name not in ("template", *unread)))
    given = [_option(name) for name in unread if name in options.changed()]
    if given:
        raise ConfigError(f"--method {options.method} does not look at {' and '.join(given)}; leave that out")
    if options.every is not None and options.points is not None:
        raise ConfigError("--every and --points both say when losses are recorded; give one of them")
    if options.four_bit and (options.lora is None or options.proxy == SCRATCH):
        raise ConfigError(
            "weights in four bits can't be learned, so --four-bit needs a pretrained --proxy and --lora 16"
        )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _whole(name: str) -> str:
    """The path from the root where there is such a file; a link keeps its own name, whose ending says what it is."""
    path = Path(name)
    return str(path.parent.resolve() / path.name) if path.exists() else name
