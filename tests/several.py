"""Trainings on several real processes (gloo, loopback), by every engine that has them, and what they end with."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data import Examples, Splits
from holdfast.methods import build_method
from holdfast.training import Curator, Event, Forward, Run, Training, fit
from holdfast.training.accumulation import _kept_statistics
from holdfast.training.ranks import Ranks, digest
from holdfast.training.shares import Share
from tests.training.toy import toy_examples

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.several"])

#: What makes each method act within four short epochs.
OPTIONS: dict[str, dict[str, Any]] = {
    "pde": {"first_expansion": 1, "every": 1},
    "epic": {"start": 1, "every": 1},
    "crest": {"ahead": 2, "uses": 2},
}
METHODS = ("spare", "jtt", "pde", "epic", "crest", "group-dro", "epic+crest", "epic+stratified", "epic+dynamic-pruning")
SIZE, EPOCHS, BATCH = 77, 4, 16  # 77 leaves 13 for a last step: uneven for two processes and for three


def policy(method: str, batch_size: int = BATCH) -> Any:
    options = {name: OPTIONS[name] for name in method.split("+") if name in OPTIONS}
    if "crest" in options:
        options["crest"] = {**options["crest"], "batch_size": batch_size}
    return build_method(method, options)


def examples() -> Examples:
    return toy_examples(SIZE)


class Net(nn.Module):
    """In float64, with batch norm where asked."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(7)
            self.body = nn.Sequential(nn.Linear(6, 16), *([nn.BatchNorm1d(16)] if norm else []), nn.Tanh())
            self.head = nn.Linear(16, 2)
        self.double()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        return self.head(self.body(x.to(self.head.weight.dtype)))


def on_ranks(count: int, work: Callable[..., Any], *arguments: Any, timeout: float = 300.0) -> list[Any]:
    """What `work` gives in each of `count` processes; the error of one is raised here."""
    with tempfile.TemporaryDirectory() as folder:
        pipes = [PROCESSES.Pipe(duplex=False) for _ in range(count)]
        running = [
            PROCESSES.Process(target=_work, args=((rank, count), folder, pipe[1], work, arguments))
            for rank, pipe in enumerate(pipes)
        ]
        for process, pipe in zip(running, pipes, strict=True):
            process.start()
            pipe[1].close()
        until, answers = time.monotonic() + timeout, list[Any]()
        try:
            for rank, (mine, _) in enumerate(pipes):
                if not mine.poll(max(until - time.monotonic(), 0.1)):
                    raise TimeoutError(f"process {rank} of {count} gave no answer")
                answers.append(_received(mine))
        finally:
            for process in running:
                process.join(5)
                process.kill()
        return answers


def _received(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return "gone"


def _work(place: tuple[int, int], folder: str, pipe: Any, work: Callable[..., Any], arguments: Any) -> None:
    rank, count = place
    torch.set_num_threads(1)
    os.environ.update(
        GLOO_SOCKET_IFNAME="lo", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count),
        MASTER_ADDR="127.0.0.1", MASTER_PORT="1", ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1",
    )  # fmt: skip
    try:
        if count > 1:
            dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
        pipe.send(work(*arguments))
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    finally:
        pipe.close()
        os._exit(0)  # at once: what torch does at the end takes seconds


def summary(model: nn.Module, plans: list[str]) -> dict[str, Any]:
    """What is compared: hashes of plans, weights and buffers, and the numbers themselves."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    return {"plans": plans, "hash": digest(state), "state": {name: value.numpy() for name, value in state.items()}}


# --------------------------------------------------------------------------------------------------------- engines


def by_fit(method: str, norm: bool, folder: str | None = None, stop_at: int | None = None, **options: Any) -> Any:
    """`fit`; with a folder it is a run, which is left after `stop_at` steps and continued when called again."""
    model, plans = Net(norm), list[str]()
    splits = Splits("toy", examples(), toy_examples(40, 1, 1000), toy_examples(40, 2, 2000))
    run = None
    if folder is not None and Ranks.current().is_main:
        run = Run.open(Path(folder)) if (Path(folder) / "config.yaml").exists() else Run.create(Path(folder), {})

    def listen(event: Event) -> None:
        if stop_at is not None and event.step >= stop_at:
            raise KeyboardInterrupt

    settings = Training(epochs=EPOCHS, batch_size=BATCH, learning_rate=0.05, checkpoint_seconds=0, **options)
    taken = _recorded(plans)
    try:
        fit(model, splits, policy(method), settings, run=run, listeners=[listen])
    except KeyboardInterrupt:
        return "stopped"
    finally:
        taken()
    return summary(model, plans)


def _recorded(plans: list[str]) -> Callable[[], None]:
    """Note the hash of every plan that a curator adopts."""
    original = Curator._update

    def update(curator: Curator, *arguments: Any) -> Any:
        given = original(curator, *arguments)
        plans.append(digest(curator.plan.tensors()))
        return given

    Curator._update = update  # type: ignore[method-assign]

    def restore() -> None:
        Curator._update = original  # type: ignore[method-assign]

    return restore


def curated(method: str, **options: Any) -> Curator:
    return Curator(examples(), policy(method), batch_size=BATCH, seed=3, **options)


def by_loop(method: str, norm: bool, epochs: int = EPOCHS, **options: Any) -> Any:
    """The README's loop, with the model in DistributedDataParallel."""
    model, curator, plans = Net(norm), curated(method, **options), list[str]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    wrapped = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    objective = policy(method).objective()
    if objective is not None:
        objective.prepare(examples())
    for _ in curator.epochs(epochs, wrapped, optimizer):
        for batch in curator:
            if objective is not None and not curator.warming_up:
                loss = objective(Forward(wrapped, curator.shared(batch), clock=curator.clock))
            else:
                losses = F.cross_entropy(wrapped(batch.inputs), batch.labels, reduction="none")
                loss = (batch.weights * losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curator.end_step(wrapped, optimizer)
            plans.append(digest(curator.plan.tensors()))
    return summary(model, plans)


def by_accelerate(method: str, norm: bool) -> Any:
    import accelerate

    from holdfast.integrations.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True)
    curator, plans, objective = curated(method), list[str](), policy(method).objective()
    bare = Net(norm)
    model, optimizer = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.05, momentum=0.9))
    loader = prepare(accelerator, curator)
    if objective is not None:
        objective.prepare(examples())
    for _ in curator.epochs(EPOCHS, accelerator.unwrap_model(model), optimizer):
        count = 0
        for batch in loader:
            if objective is not None:
                loss = objective(Forward(model, curator.shared(batch), clock=curator.clock))
            else:
                losses = F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
                loss = (batch.weights * losses).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            curator.end_step(accelerator.unwrap_model(model), optimizer)
            plans.append(digest(curator.plan.tensors()))
            count += 1
        assert count == len(loader), (count, len(loader))
    return summary(bare, plans)


def by_lightning(method: str, norm: bool) -> Any:
    import lightning as L
    from lightning.pytorch.plugins.environments import LightningEnvironment

    from holdfast.integrations.dataloader import curated_loader
    from holdfast.integrations.lightning import CuratorCallback

    curator, plans, objective = curated(method, epoch_size=SIZE), list[str](), policy(method).objective()
    if objective is not None:
        objective.prepare(examples())

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(norm)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: Any, _: int) -> Tensor:
            plans.append(digest(curator.plan.tensors()))
            if objective is not None:
                return objective(Forward(self, curator.shared(batch), clock=curator.clock))
            losses = F.cross_entropy(self(batch.inputs), batch.labels, reduction="none")
            return (batch.weights * losses).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    class Started(LightningEnvironment):
        """Processes are there already, and so is their group."""

        @property
        def creates_processes_externally(self) -> bool:
            return True

        def world_size(self) -> int:
            return dist.get_world_size() if dist.is_initialized() else 1

        def global_rank(self) -> int:
            return dist.get_rank() if dist.is_initialized() else 0

        def local_rank(self) -> int:
            return self.global_rank()

    module, count = Module(), dist.get_world_size() if dist.is_initialized() else 1
    several = {"strategy": "ddp", "plugins": [Started()], "devices": count} if count > 1 else {"devices": 1}
    quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    epochs, callbacks = EPOCHS + curator.chain.warmup_epochs, [CuratorCallback(curator)]
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, callbacks=callbacks, **quiet, **several)
    trainer.fit(module, curated_loader(curator))
    return summary(module.net, plans)


class NamedNet(Net):
    """As a Trainer wants it."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(x)
        return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}


def by_trainer(method: str, norm: bool) -> Any:
    import transformers

    from holdfast.integrations.hf_trainer import curated_trainer

    toy, count = examples(), dist.get_world_size() if dist.is_initialized() else 1
    named = Examples.of(
        {"x": toy.inputs.gather(torch.arange(SIZE))}, toy.labels, attributes=toy.attributes, ids=toy.ids
    )
    size = 12 if count == 3 else BATCH  # a step must be as many examples in each process
    curator = Curator(named, policy(method, size), batch_size=size, seed=3, epoch_size=SIZE - SIZE % 2)
    plans = list[str]()
    model = NamedNet(norm)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=EPOCHS + curator.chain.warmup_epochs, per_device_train_batch_size=size // count,
            optim="sgd", learning_rate=0.05, lr_scheduler_type="constant", use_cpu=True, save_strategy="no",
            report_to=[], disable_tqdm=True, max_grad_norm=0.0, ddp_backend="gloo", logging_strategy="no",
        )  # fmt: skip
        trainer = curated_trainer(transformers.Trainer, curator)(model=model, args=arguments)
        taken = _recorded(plans)
        trainer.train()
        taken()
    return summary(model, plans)


def by_shares(method: str, count: int) -> Any:
    """One process that normalises as `count` do: the model is run on each share by itself, the loss is of the whole."""
    model, curator, plans = Net(norm=True), curated(method), list[str]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in curator.epochs(EPOCHS, model, optimizer):
        for inputs, labels, _, weights in curator:
            logits = torch.zeros(len(labels), 2, dtype=torch.float64)
            for rank in reversed(range(count)):
                share = Share.of(len(labels), Ranks(rank, count))
                with _kept_statistics(model) if rank else nullcontext():  # running ones are the first process's
                    outputs = model(inputs[share.places])[: share.counted]
                logits = logits.index_put((share.places[: share.counted],), outputs)
            optimizer.zero_grad()
            (weights * F.cross_entropy(logits, labels, reduction="none")).mean().backward()
            optimizer.step()
            curator.end_step(model, optimizer)
            plans.append(digest(curator.plan.tensors()))
    return summary(model, plans)


ENGINES: dict[str, Callable[..., Any]] = {
    "fit": by_fit,
    "loop": by_loop,
    "accelerate": by_accelerate,
    "lightning": by_lightning,
    "trainer": by_trainer,
}


def by_engine(engine: str, cases: list[tuple[str, bool]]) -> list[Any]:
    """Several cases in one set of processes, since starting them is what takes the time."""
    return [ENGINES[engine](method, norm) for method, norm in cases]


def stopping_one(engine: str, method: str, number: int) -> Any:
    """Train, and let the last process be sent a signal once the second epoch has begun."""
    if dist.get_rank() == dist.get_world_size() - 1:
        original = Curator._update

        def update(curator: Curator, *arguments: Any) -> Any:
            if curator.clock.epoch >= 1:
                os.kill(os.getpid(), number)
            return original(curator, *arguments)

        Curator._update = update  # type: ignore[method-assign]
    return ENGINES[engine](method, False)
