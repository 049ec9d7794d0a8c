"""Check B: what EPIC keeps account of, in a plain loop, in `fit`, in a chain."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from holdfast.coresets import Crest
from holdfast.data.examples import Examples, Splits
from holdfast.errors import ConfigError, DataError
from holdfast.methods import build_method
from holdfast.poisoning import Epic
from holdfast.training import Curator, PlannedTraining, Run, Training, fit
from holdfast.training.clock import Clock
from holdfast.training.model_outputs import ModelOutputs
from holdfast.training.plan import Plan
from holdfast.training.policy import Context

N = 240


def examples(seed: int = 0) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(N) % 3
    x = torch.randn(N, 6, generator=draw) + 2 * F.one_hot(labels, 6)
    x[::17] *= 3
    return Examples.of(x, labels, ids=torch.arange(N) + 1000)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def train(policy: Epic | object, epochs: int = 12, watch=None) -> Curator:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    curator = Curator(examples(), policy, batch_size=32, seed=0)
    for epoch in curator.epochs(epochs, model, optimizer):
        seen = []
        for x, y, positions, weight in curator:
            optimizer.zero_grad()
            (weight * F.cross_entropy(model(x), y, reduction="none")).mean().backward()
            optimizer.step()
            seen += positions.tolist()
        if watch:
            watch(epoch, seen)
    return curator


def test_rounds_come_on_the_grid_after_the_warm_up_and_before_the_stop() -> None:
    policy = Epic(fraction=0.3, start=3, every=2, stop=9)
    train(policy)
    assert [drop.epoch for drop in policy.drops] == [4, 6, 8]


def test_what_is_dropped_never_comes_back() -> None:
    policy, epochs = Epic(fraction=0.3, start=2, every=2), {}
    train(policy, watch=lambda epoch, seen: epochs.update({len(epochs): set(seen)}))
    gone: set[int] = set()
    for epoch, seen in epochs.items():
        for drop in policy.drops:
            if drop.epoch == epoch:
                gone |= {int(identity) - 1000 for identity in drop.ids}
        assert seen == set(range(N)) - gone
    assert gone
    assert sum(len(drop.ids) for drop in policy.drops) == len(gone)


def test_remaining_pools_drop_more() -> None:
    counts = {}
    for pool in ("all", "remaining"):
        policy = Epic(fraction=0.3, start=2, every=1, pool=pool)  # type: ignore[arg-type]
        train(policy)
        counts[pool] = sum(len(drop.ids) for drop in policy.drops)
    assert counts["remaining"] > counts["all"] > 0


@pytest.mark.parametrize("proxy", ["logits", "last-input", "last-layer"])
def test_every_proxy_drops_something(proxy: str) -> None:
    policy = Epic(fraction=0.3, start=2, every=4, proxy=proxy)  # type: ignore[arg-type]
    train(policy)
    assert sum(len(drop.ids) for drop in policy.drops) > 0


def test_a_class_never_vanishes_in_silence() -> None:
    few = Examples.of(torch.cat([torch.randn(40, 4), torch.eye(4)]), torch.tensor([0] * 40 + [1] * 4))
    model = nn.Linear(4, 2)

    def update(kept: torch.Tensor) -> Epic:
        policy = Epic(fraction=0.5, start=0, every=1, largest=4)
        policy.load_state_dict({"kept": kept, "rounds": []})
        policy.update(Context(Clock(), few, Plan(), model, ModelOutputs(model, few), 0, "epic"))
        return policy

    first = update(torch.ones(44, dtype=torch.bool)).drops[0].ids
    alone = first[first >= 40]
    kept = torch.ones(44, dtype=torch.bool)
    kept[40:] = False
    kept[alone] = True
    with pytest.raises(DataError, match="drop the last example of class y1"):
        update(kept)


def test_the_log_says_when_who_and_why(tmp_path: Path) -> None:
    policy = Epic(fraction=0.3, start=2, every=2)
    train(policy)
    policy.save_artifacts(tmp_path)
    table = pq.read_table(tmp_path / "epic.parquet").to_pydict()
    assert set(table) == {"epoch", "id", "class", "cluster_size", "loss", "predicted"}
    assert set(table["cluster_size"]) == {1}
    assert [(identity - 1000) % 3 for identity in table["id"]] == table["class"]
    assert set(table["epoch"]) <= {2, 4, 6, 8, 10}


def test_a_chain_chooses_within_what_is_left() -> None:
    epic, seen_late = Epic(fraction=0.3, start=2, every=2), []
    chain = epic >> Crest(batch_size=16)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    curator = Curator(examples(), chain, batch_size=16, seed=0)
    for x, y, positions, weight in curator.steps(150, model, optimizer):
        gone = {int(identity) - 1000 for drop in epic.drops for identity in drop.ids}
        assert not gone & set(positions.tolist())
        optimizer.zero_grad()
        (weight * F.cross_entropy(model(x), y, reduction="none")).mean().backward()
        optimizer.step()
        seen_late = positions.tolist()
    assert seen_late
    assert epic.drops


def test_in_fit_by_its_name(tmp_path: Path) -> None:
    data = examples()
    splits = Splits("toy", data, examples(1), examples(2))
    run = Run.create(tmp_path / "run", {})
    policy = build_method("epic", {"epic": {"fraction": 0.3, "start": 1, "every": 1}})
    fit(network(), splits, policy, Training(epochs=4, batch_size=32, learning_rate=0.1), run=run)
    assert (tmp_path / "run" / "epic.parquet").exists()


def test_poison_flags_never_reach_the_selector() -> None:
    """Attributes and groups of examples are for reports: other ones change nothing."""
    plain, flagged = examples(), examples()
    flagged = Examples.of(
        flagged.inputs.gather(torch.arange(N)), flagged.labels, ids=flagged.ids, attributes=torch.arange(N) % 2
    )
    model = network()
    values = []
    for data in (plain, flagged):
        policy = Epic(fraction=0.4, start=0, every=1)
        policy.update(Context(Clock(), data, Plan(), model, ModelOutputs(model, data), 0, "epic"))
        values.append(policy.drops[0].ids.tolist())
    assert values[0] == values[1]


@pytest.mark.parametrize("wrong", [{"fraction": 0.0}, {"fraction": 1.0}, {"every": 0}, {"start": -1}, {"largest": 0}])
def test_options_that_make_no_sense(wrong: dict) -> None:
    with pytest.raises(ConfigError, match="give"):
        Epic(**wrong)


def test_a_training_that_ends_before_the_first_round() -> None:
    with pytest.raises(ConfigError, match="first round is at epoch 10 and the training has 10"):
        Epic(start=9, every=2).validate(PlannedTraining(10))
    Epic(start=9, every=2).validate(PlannedTraining(11))


def test_due_only_when_an_epoch_starts() -> None:
    policy = Epic(start=4, every=2, stop=8)
    due = [epoch for epoch in range(12) if policy.due(Clock(epoch=epoch))]
    assert due == [4, 6]
    assert not policy.due(Clock(epoch=4, step_in_epoch=1))


def test_a_rare_group_that_is_known_is_compared_with_itself() -> None:
    """Sixty alike and six that differ: in one class the six stand alone, as a group of their own only a share of it."""
    stream = torch.Generator().manual_seed(0)
    rare = torch.arange(66) >= 60
    inputs = torch.randn(66, 2, generator=stream) * torch.where(rare, 0.5, 0.02)[:, None]
    inputs[rare, 0] += 3
    data = Examples.of(inputs, torch.zeros(66, dtype=torch.int64), groups=rare.long(), class_names=("only", "other"))
    model = nn.Linear(2, 2)
    lost = {}
    for name, plan in (("none", Plan()), ("inferred", Plan(groups=rare.long())), ("data", Plan())):
        policy = Epic(fraction=0.2, start=0, every=1, protect=name)
        policy.update(Context(Clock(), data, plan, model, ModelOutputs(model, data), 0, "epic"))
        lost[name] = int(rare[policy.drops[0].ids].sum())
    assert lost["inferred"] == lost["data"] <= 2 < lost["none"]
