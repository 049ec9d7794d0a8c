import pytest
import torch
import torch.nn.functional as F

from holdfast.data.sets.images.patches import PatchData
from holdfast.models import build
from holdfast.theory.spurious import HeavyBall, PatchSample, Schedule, patch_study, train_on_patches

SMALL = PatchData(n=600, seed=1, alpha=0.9)
WARMUP = Schedule(rate=0.03, momentum=0.9, warmup_steps=20)


@pytest.fixture
def stages(monkeypatch):
    """Every stage of training: the sample, the number of steps, momentum, and the buffer that it starts with."""
    seen = []

    class Recorded(HeavyBall):
        def run(self, sample, steps):
            seen.append((sample, steps, self.momentum, self.buffer))
            super().run(sample, steps)

    monkeypatch.setattr(patch_study, "HeavyBall", Recorded)
    return seen


@pytest.mark.parametrize("model", ["cubic", "cubic-pure"])
def test_plain_training_is_a_frameworks_full_batch_training(model):
    examples, test = (PatchSample.of(SMALL.draw(part)) for part in ("train", "test"))
    network = build(model, (3, 50), 2, seed=5)
    optimizer = torch.optim.SGD(network.filters.parameters(), 0.1, momentum=0.5)
    inputs, target = torch.tensor(SMALL.draw("train").inputs), (examples.labels > 0).long()
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(network(inputs), target).backward()
        optimizer.step()
    found = train_on_patches(SMALL, model, Schedule(0.1, 0.5, expansions=[None], expansion_steps=60), seed=5)
    with torch.no_grad():
        right = network(torch.tensor(SMALL.draw("test").inputs)).argmax(dim=1) == (test.labels > 0)
        assert found["core_probe"] == pytest.approx(float((network.filters.weight @ test.core).abs().max()), rel=1e-4)
        assert found["loss"] == pytest.approx(float(F.cross_entropy(network(inputs), target)), rel=1e-4)
    assert found["average"] == pytest.approx(100 * float(right.float().mean()))
    assert found["worst_pooled"] == pytest.approx(100 * float(right[~test.aligned].float().mean()))
    by_cell = [100 * float(right[test.cells == cell].float().mean()) for cell in range(4)]
    assert found["worst_cell"] == pytest.approx(min(by_cell))
    assert found["gap"] == pytest.approx(found["average"] - found["worst_pooled"])
    assert not any(name.startswith(("warmup", "selected")) for name in found)


def test_the_warm_up_is_balanced_and_every_expansion_adds_what_it_says(stages):
    schedule = Schedule(**{**vars(WARMUP), "expansions": [30, 10, None], "expansion_steps": 3})
    train_on_patches(SMALL, "cubic", schedule, seed=0)
    sizes = [len(sample) for sample, *_ in stages]
    (balanced, *_), *_ = stages
    counts = torch.bincount(balanced.cells)
    assert counts.tolist() == [int(counts[0])] * 4
    assert sizes == [sizes[0], sizes[0] + 30, sizes[0] + 40, 600]
    assert [steps for _, steps, *_ in stages] == [20, 3, 3, 3]
    before = {tuple(patch.tolist()) for patch in stages[1][0].noise}
    after = {tuple(patch.tolist()) for patch in stages[2][0].noise}
    assert before < after
    assert len(after) == sizes[2]


@pytest.mark.parametrize("draw", ["ordered", "uniform"])
def test_stored_order_takes_one_majority_cell_and_uniform_draws_take_both(stages, draw):
    schedule = Schedule(**{**vars(WARMUP), "expansions": [60], "expansion_steps": 1, "draw": draw})
    train_on_patches(SMALL, "cubic", schedule, seed=0)
    added = torch.bincount(stages[1][0].cells) - torch.bincount(stages[0][0].cells)
    if draw == "ordered":
        assert added.tolist() == [60, 0, 0, 0]
    else:
        assert min(int(added[0]), int(added[3])) > 10


@pytest.mark.parametrize("reset", ["keep", "zero_buffers", "no_momentum"])
def test_momentum_is_kept_cleared_or_dropped_when_the_warm_up_ends(stages, reset):
    schedule = Schedule(**{**vars(WARMUP), "expansions": [10, 10], "expansion_steps": 2, "reset": reset})
    found = train_on_patches(SMALL, "cubic", schedule, seed=0)
    sample, _, momentum, buffer = stages[1]
    largest = float((buffer.weights @ sample.core).abs().max())
    assert momentum == (0 if reset == "no_momentum" else 0.9)
    assert largest == (found["warmup_buffer_core"] if reset == "keep" else 0)
    assert found["warmup_buffer_core"] > 0
    assert bool(stages[2][3].weights.any())


def test_the_stage_with_the_best_validation_worst_group_is_reported(monkeypatch):
    """Scores by stage on (test, validation); the first of the best on validation counts."""
    planned = iter([(50.0, 70.0), (60.0, 80.0), (65.0, 80.0), (90.0, 10.0)])
    scored = []

    def fake(filters, sample):
        if not scored:
            scored.extend(next(planned))
        return {"worst_pooled": scored.pop(0)}

    monkeypatch.setattr(patch_study, "_scored", fake)
    schedule = Schedule(**{**vars(WARMUP), "warmup_steps": 1, "expansions": [5, 5, 5], "expansion_steps": 1})
    found = train_on_patches(SMALL, "cubic", schedule, seed=0)
    assert (found["warmup_worst_pooled"], found["selected_worst_pooled"], found["worst_pooled"]) == (50, 60, 90)


def test_a_seed_repeats_itself_and_another_differs():
    schedule = Schedule(**{**vars(WARMUP), "expansions": [10], "expansion_steps": 2})
    first, again, other = (train_on_patches(SMALL, "cubic-pure", schedule, seed) for seed in (0, 0, 1))
    assert first == again
    assert first["start_core_probe"] != other["start_core_probe"]
