"""Trainings on several real processes (gloo, loopback), by every engine that has them, and what they end with."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from holdfast.data import Examples, Splits
from holdfast.errors import Interrupted
from holdfast.methods import build_method
from holdfast.training import Curator, Forward, Run, Training, fit
from holdfast.training.accumulation import _kept_statistics
from holdfast.training.batches import Batch
from holdfast.training.gradient_order import average_in_order
from holdfast.training.interruption import interruptions
from holdfast.training.objective import CrossEntropy
from holdfast.training.ranks import Ranks, digest, lost_processes_named
from holdfast.training.settings import build_optimizer
from holdfast.training.shares import Share
from holdfast.training.state import load_state, save_state
from tests.children import PROCESSES
from tests.training.toy import toy_examples

#: What makes each method act within four short epochs.
OPTIONS: dict[str, dict[str, Any]] = {
    "pde": {"first_expansion": 1, "every": 1},
    "epic": {"start": 1, "every": 1},
    "crest": {"ahead": 2, "uses": 2},
}
METHODS = ("spare", "jtt", "pde", "epic", "crest", "group-dro", "epic+crest", "epic+stratified", "epic+dynamic-pruning")
SIZE, EPOCHS, BATCH = 77, 4, 16  # 77 leaves 13 for a last step: uneven for two processes and for three
EVEN = 12  # examples of a step of transformers' Trainer, which wants as many in each process


class Left(BaseException):
    """A training is left where it stands."""


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
    """What `work` gives in each of `count` processes; instead of an answer, how one failed."""
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


def numbers(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.clone().numpy() for name, tensor in model.state_dict().items()}


def summary(model: nn.Module, plans: list[str]) -> dict[str, Any]:
    """What is compared: hashes of plans, weights and buffers, and the numbers themselves.

    `fit` ends with the best epoch's, so there the last epoch's stand beside them.
    """
    state = numbers(model)
    return {"plans": plans, "hash": digest(model.state_dict()), "state": state, "last": state}


# --------------------------------------------------------------------------------------------------------- engines


FIT = Training(epochs=EPOCHS, batch_size=BATCH, learning_rate=0.05, checkpoint_seconds=0)


def by_fit(method: str, norm: bool, folder: str | None = None, stop_at: int | None = None, **options: Any) -> Any:
    """`fit`; with a folder it is a run, which is asked to end after `stop_at` steps and continued when called again."""
    model, plans = Net(norm), list[str]()
    splits = Splits("toy", examples(), toy_examples(40, 1, 1000), toy_examples(40, 2, 2000))
    run = None
    if folder is not None and Ranks.current().is_main:
        run = Run.open(Path(folder)) if (Path(folder) / "config.yaml").exists() else Run.create(Path(folder), {})

    def ask(curator: Curator) -> None:
        if curator.clock.step == stop_at:
            interruptions.note(signal.SIGTERM)

    last = dict[str, Any]()
    remember = after("end_epoch", lambda curator: last.update(numbers(model)))
    with noted(plans), after("end_step", ask), remember:
        try:
            fit(model, splits, policy(method), replace(FIT, **options), run=run)
        except Interrupted:
            raise Left from None
        finally:
            interruptions.forget()
    return {**summary(model, plans), "last": last}


@contextmanager
def after(name: str, then: Callable[[Curator], None]) -> Iterator[None]:
    """Do something whenever a curator has done something."""
    original = getattr(Curator, name)

    def does(curator: Curator, *arguments: Any, **options: Any) -> Any:
        given = original(curator, *arguments, **options)
        then(curator)
        return given

    setattr(Curator, name, does)
    try:
        yield
    finally:
        setattr(Curator, name, original)


def noted(plans: list[str]) -> AbstractContextManager[None]:
    """Note the hash of every plan that a curator adopts."""
    return after("_update", lambda curator: plans.append(digest(curator.plan.tensors())))


def curated(method: str, **options: Any) -> Curator:
    return Curator(examples(), policy(method), batch_size=BATCH, seed=3, **options)


class Kept:
    """What a loop of one's own saves after some step, and continues from when called again.

    Args:
        folder: where; nowhere by default.
        stop_at: the step after which training is left.
        parts: what has a state, by name.
    """

    def __init__(self, folder: str | None, stop_at: int | None, **parts: Any) -> None:
        self._folder, self._stop_at = Path(folder or "."), stop_at
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self.resumes = folder is not None and stop_at is None
        if self.resumes:
            state = load_state(self._folder / "loop.safetensors")
            for name, part in self._parts.items():
                part.load_state_dict(state[name])

    def leave_after(self, step: int, save: Callable[[Path], None] = lambda folder: None) -> None:
        """Save and leave, if this is the step."""
        if step == self._stop_at:
            self._folder.mkdir(parents=True, exist_ok=True)
            if Ranks.current().is_main:
                state = {name: part.state_dict() for name, part in self._parts.items()}
                save_state(state, self._folder / "loop.safetensors")
            save(self._folder)
            raise Left


def by_loop(
    method: str, norm: bool, folder: str | None = None, stop_at: int | None = None, *, epochs: int = EPOCHS
) -> Any:
    """The README's loop, with the model in DistributedDataParallel."""
    model, curator, plans = Net(norm), curated(method), list[str]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    wrapped = average_in_order(nn.parallel.DistributedDataParallel(model)) if dist.is_initialized() else model
    objective = policy(method).objective()
    if objective is not None:
        objective.prepare(examples())
    kept = Kept(folder, stop_at, model=model, optimizer=optimizer, curator=curator, objective=objective)
    for _ in curator.epochs(epochs, wrapped, optimizer):
        for batch in curator:
            if objective is not None and not curator.warming_up:
                loss = objective(Forward(wrapped, curator.shared(batch), clock=curator.clock))
            else:
                losses = F.cross_entropy(wrapped(batch.inputs), batch.labels, reduction="none")
                loss = (batch.weights * losses).mean()
            optimizer.zero_grad()
            with lost_processes_named(curator.ranks):  # as the guide has it, for the gradients
                loss.backward()
            optimizer.step()
            curator.end_step(wrapped, optimizer)
            plans.append(digest(curator.plan.tensors()))
            kept.leave_after(curator.clock.step)
    return summary(model, plans)


def by_accelerate(method: str, norm: bool, folder: str | None = None, stop_at: int | None = None) -> Any:
    import accelerate

    from holdfast.integrations.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True)
    curator, plans, objective = curated(method), list[str](), policy(method).objective()
    bare = Net(norm)
    model, optimizer = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.05, momentum=0.9))
    loader = prepare(accelerator, curator)
    average_in_order(model)
    if objective is not None:
        objective.prepare(examples())
    kept = Kept(folder, stop_at, objective=objective)
    if kept.resumes:
        accelerator.load_state(folder)
    for _ in curator.epochs(EPOCHS, accelerator.unwrap_model(model), optimizer):
        count = curator.clock.step_in_epoch
        for batch in loader:
            if objective is not None:
                loss = objective(Forward(model, curator.shared(batch), clock=curator.clock))
            else:
                losses = F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
                loss = (batch.weights * losses).mean()
            with lost_processes_named(curator.ranks):
                accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            curator.end_step(accelerator.unwrap_model(model), optimizer)
            plans.append(digest(curator.plan.tensors()))
            count += 1
            kept.leave_after(curator.clock.step, lambda path: accelerator.save_state(str(path)))
        assert count == len(loader), (count, len(loader))
    return summary(bare, plans)


def by_lightning(method: str, norm: bool, folder: str | None = None, stop_at: int | None = None) -> Any:
    import lightning as L
    from lightning.pytorch.plugins.environments import LightningEnvironment

    from holdfast.integrations.dataloader import curated_loader
    from holdfast.integrations.lightning import CuratorCallback

    curator, plans, objective = curated(method, epoch_size=SIZE), list[str](), policy(method).objective()
    if objective is not None:
        objective.prepare(examples())
    checkpoint = f"{folder}/lightning.ckpt"

    class Leaving(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == stop_at:
                trainer.save_checkpoint(checkpoint)
                raise Left

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(norm)

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["objective"] = {} if objective is None else objective.state_dict()

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            if objective is not None:
                objective.load_state_dict(checkpoint["objective"])

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
    epochs, callbacks = EPOCHS + curator.chain.warmup_epochs, [CuratorCallback(curator), Leaving()]
    trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, callbacks=callbacks, **quiet, **several)
    resumed = checkpoint if folder is not None and stop_at is None else None
    trainer.fit(module, curated_loader(curator), ckpt_path=resumed)
    return summary(module.net, plans)


class NamedNet(Net):
    """As a Trainer wants it."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(x)
        return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}


def by_trainer(method: str, norm: bool, folder: str | None = None, stop_at: int | None = None) -> Any:
    import transformers

    from holdfast.integrations.hf_trainer import POSITION, WEIGHT, curated_trainer

    curator, plans, objective = curated_by("trainer", policy(method, EVEN)), list[str](), policy(method).objective()
    trainer_class = curated_trainer(transformers.Trainer, curator)
    if objective is not None:
        objective.prepare(curator.examples)
    kept = Kept(folder, stop_at, objective=objective)

    class Leaving(transformers.TrainerCallback):
        def on_save(self, arguments: Any, state: Any, *_: Any, **parts: Any) -> None:
            kept.leave_after(state.global_step)

    class WholeBatchLoss(trainer_class):
        def compute_loss(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **options: Any) -> Tensor:
            batch = Batch({"x": inputs["x"]}, inputs["labels"], inputs[POSITION], inputs[WEIGHT])
            return objective(Forward(model, curator.shared(batch), clock=curator.clock))

    count = dist.get_world_size() if dist.is_initialized() else 1
    saves = {"save_strategy": "no"} if stop_at is None else {"save_strategy": "steps", "save_steps": stop_at}
    with tempfile.TemporaryDirectory() as elsewhere:
        arguments = transformers.TrainingArguments(
            folder or elsewhere, num_train_epochs=EPOCHS + curator.chain.warmup_epochs,
            per_device_train_batch_size=EVEN // count, optim="sgd", learning_rate=0.05,
            lr_scheduler_type="constant", use_cpu=True, report_to=[], disable_tqdm=True, max_grad_norm=0.0,
            ddp_backend="gloo", logging_strategy="no", **saves,
        )  # fmt: skip
        model = NamedNet(norm)
        trainer = (trainer_class if objective is None else WholeBatchLoss)(model=model, args=arguments)
        trainer.add_callback(Leaving())
        with noted(plans):
            trainer.train(resume_from_checkpoint=kept.resumes)
    return summary(model, plans)


def curated_by(engine: str, made: Any) -> Curator:
    """The curator that an engine is given."""
    if engine != "trainer":
        options = {"epoch_size": SIZE} if engine == "lightning" else {}
        return Curator(examples(), made, batch_size=BATCH, seed=FIT.seed if engine == "fit" else 3, **options)
    toy = examples()
    named = Examples.of(
        {"x": toy.inputs.gather(torch.arange(SIZE))}, toy.labels, attributes=toy.attributes, ids=toy.ids
    )
    return Curator(named, made, batch_size=EVEN, seed=3, epoch_size=SIZE - SIZE % 2)


def by_shares(engine: str, method: str, count: int) -> Any:
    """One process that normalises as `count` do: the model is run on each share by itself, the loss is of the whole."""
    made = policy(method, EVEN if engine == "trainer" else BATCH)
    model, curator, plans = NamedNet(norm=True), curated_by(engine, made), list[str]()
    optimizer = build_optimizer(model, replace(FIT, momentum=0.0 if engine == "trainer" else FIT.momentum))
    objective = (made if engine == "fit" else policy(method)).objective()  # in `fit` policies hear of their losses
    if objective is not None:
        objective.prepare(examples())
    for _ in curator.epochs(EPOCHS, model, optimizer):
        for batch in curator:
            trained = CrossEntropy() if objective is None or curator.warming_up else objective
            logits, size = torch.zeros(len(batch.labels), 2, dtype=torch.float64), len(batch.labels)
            handed_out = torch.zeros(size, dtype=torch.float64)
            inputs = batch.inputs["x"] if isinstance(batch.inputs, dict) else batch.inputs
            for rank in reversed(range(count)):
                share = Share.of(len(batch.labels), Ranks(rank, count))
                with _kept_statistics(model) if rank else nullcontext():  # running ones are the first process's
                    outputs = model(inputs[share.places])["logits"][: share.counted]
                own, factor = share.places[: share.counted], size / (count * len(share.places))
                logits = logits.index_put((own,), outputs)
                handed_out[own] = share.weigh(batch.weights)[: share.counted].double() * factor
            # Weights of shares are rounded to float32; losses that see the mini-batch as a whole get its own.
            rounded = trained is not objective or (engine == "fit" and trained.is_mean)
            weighed = batch._replace(weights=handed_out) if rounded else batch
            forward = Forward(model, weighed, clock=curator.clock)
            forward.__dict__["logits"] = logits
            optimizer.zero_grad()
            trained(forward).backward()
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


def by_engine(engine: str, cases: list[tuple[Any, ...]]) -> list[Any]:
    """Several cases in one set of processes, since starting them is what takes the time.

    Args:
        engine: which.
        cases: a method, whether with batch norm, and perhaps a folder and the step after which to leave.
    """
    results = list[Any]()
    for case in cases:
        try:
            results.append(ENGINES[engine](*case))
        except Left:
            results.append("left")
    return results


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
