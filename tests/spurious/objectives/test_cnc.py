import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from holdfast.data import Examples
from holdfast.errors import ConfigError, HoldfastWarning
from holdfast.spurious.group_inference.base import InferGroups
from holdfast.spurious.objectives.cnc import Cnc, CncLoss, contrast, contrastive_batches
from holdfast.spurious.reweighting.balancing import GroupBalanced
from holdfast.training import Batch, Curator, Forward, Plan, Run, Training, Uniform, fit
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_model, toy_splits

#: Groups are looked at here; what these loops train is beside the point.
pytestmark = pytest.mark.filterwarnings("ignore:.* has a loss of its own")

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def confused(n: int = 400, n_classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels, and predictions that are right for about 3 of 4."""
    generator = stream(seed)
    labels = torch.randint(n_classes, (n,), generator=generator)
    other = (labels + torch.randint(1, n_classes, (n,), generator=generator)) % n_classes
    return labels, torch.where(torch.rand(n, generator=generator) < 0.75, labels, other)


# ------------------------------------------------------------------------------------------------ the mini-batches


@pytest.mark.parametrize("two_sided", [False, True])
def test_every_example_has_the_role_that_its_place_says(two_sided):
    labels, predictions = confused()
    batches = contrastive_batches(labels, predictions, 6, stream(), two_sided=two_sided)
    assert batches.shape[1] == (24 if two_sided else 18)
    for row in batches:
        anchors, positives, negatives, *of_positives = row.split(6)
        c = int(labels[anchors[0]])
        assert labels[anchors].eq(c).all()
        assert predictions[anchors].eq(c).all()
        assert labels[positives].eq(c).all()
        assert predictions[positives].ne(c).all()
        assert labels[negatives].ne(c).all()
        assert predictions[negatives].eq(c).all()
        for rest in of_positives:
            assert labels[rest].ne(c).all()
            assert len(set(predictions[torch.cat([positives, rest])].tolist())) == 1


@pytest.mark.parametrize("two_sided", [False, True])
def test_every_anchor_comes_once_where_classes_are_equal_and_sets_divide_them(two_sided):
    labels = torch.arange(3).repeat_interleave(10)
    predictions = labels.clone()
    predictions[[8, 9, 18, 19, 28, 29]] = torch.tensor([1, 2, 0, 2, 0, 1])
    batches = contrastive_batches(labels, predictions, 4, stream(), two_sided=two_sided)
    assert len(batches) == 6
    assert sorted(batches[:, :4].flatten().tolist()) == (predictions == labels).nonzero().flatten().tolist()


def test_classes_of_unequal_size_have_equally_many_batches_and_their_examples_come_equally_often_up_to_one():
    labels = torch.tensor([0] * 100 + [1] * 20)
    predictions = labels.clone()
    predictions[:7], predictions[100:105] = 1, 0
    batches = contrastive_batches(labels, predictions, 9, stream())
    n_batches = math.ceil((93 + 15) / (2 * 9))
    assert labels[batches[:, 0]].bincount().tolist() == [n_batches, n_batches]
    visits = batches.flatten().bincount(minlength=120)
    of_class_0 = batches[:n_batches].flatten().bincount(minlength=120)
    assert int(visits.sum()) == 2 * n_batches * 27
    for role in (range(7, 100), range(7), range(100, 105)):
        assert int(of_class_0[list(role)].max()) - int(of_class_0[list(role)].min()) <= 1


def test_positives_are_as_often_of_each_kind_of_mistake_as_the_class_has_them():
    labels = torch.tensor([0] * 140 + [1] * 10 + [2] * 10)
    predictions = labels.clone()
    predictions[:30], predictions[30:40], predictions[140], predictions[150] = 1, 2, 0, 0
    for two_sided in (False, True):
        batches = contrastive_batches(labels, predictions, 1, stream(), two_sided=two_sided)
        positives = batches[labels[batches[:, 0]] == 0, 1]
        assert len(positives) == math.ceil(118 / 3)
        assert predictions[positives].bincount().tolist() == pytest.approx([0, 30, 10], abs=1)


def test_a_class_that_is_never_wrong_gives_no_anchors():
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    predictions = torch.tensor([0, 1, 1, 0, 2, 2])
    batches = contrastive_batches(labels, predictions, 2, stream())
    assert sorted(labels[batches[:, 0]].tolist()) == [0, 1]


def test_where_nothing_was_taken_for_the_class_negatives_are_of_any_other_class():
    labels = torch.tensor([0, 0, 1, 1])
    predictions = torch.tensor([0, 1, 1, 1])
    (row,) = contrastive_batches(labels, predictions, 2, stream()).tolist()
    assert row[:4] == [0, 0, 1, 1]
    assert sorted(row[4:]) == [2, 3]


def test_the_stream_decides_the_batches():
    labels, predictions = confused()
    first, again, other = (contrastive_batches(labels, predictions, 6, stream(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("predictions", "match"),
    [([0, 0, 1, 1], "misclassifies no training example.*lower `infer_epoch`"), ([0, 0, 0, 0], "wholly right or")],
)
def test_without_any_positive_the_error_names_the_remedy(predictions, match):
    with pytest.raises(ConfigError, match=match):
        contrastive_batches(torch.tensor([0, 0, 1, 1]), torch.tensor(predictions), 2, stream())


# -------------------------------------------------------------------------------------------------------- the loss


def test_the_contrast_equals_the_loop_over_pairs():
    generator = stream()
    anchors, positives, negatives = (torch.randn(k, 5, generator=generator) for k in (3, 4, 6))
    cos = torch.nn.CosineSimilarity(dim=0)
    terms = []
    for a in anchors:
        every = sum(math.exp(float(cos(a, x)) / 0.5) for x in [*positives, *negatives])
        terms += [-math.log(math.exp(float(cos(a, p)) / 0.5) / every) for p in positives]
    assert float(contrast(anchors, positives, negatives, 0.5)) == pytest.approx(sum(terms) / len(terms), rel=1e-5)


@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_the_loss_falls_as_anchor_and_positive_get_closer_and_rises_as_anchor_and_negative_do(tau):
    """SpuCo adds the contrastive term with the other sign."""
    anchor, away = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    closer = [torch.lerp(away, anchor, share) for share in (0.0, 0.3, 0.6, 0.9)]
    as_positive = [float(contrast(anchor, other, away, tau)) for other in closer]
    as_negative = [float(contrast(anchor, away, other, tau)) for other in closer]
    assert as_positive == sorted(as_positive, reverse=True)
    assert as_negative == sorted(as_negative)
    assert as_positive[0] == pytest.approx(math.log(2))
    assert len(set(as_positive)) == len(set(as_negative)) == 4


def test_small_temperatures_neither_overflow_nor_vanish():
    anchor = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = contrast(anchor, torch.tensor([[-1.0, 1e-3]]), torch.tensor([[1.0, 0.0]]), 0.005)
    assert float(loss.detach()) == pytest.approx(400, rel=1e-3)
    (gradient,) = torch.autograd.grad(loss, anchor)
    assert float(gradient.norm()) > 0


class Given(Forward):
    """A forward pass with given features and losses."""

    def __init__(self, features, losses, weights=None) -> None:
        zeros, weights = torch.zeros(len(losses)), torch.ones(len(losses)) if weights is None else torch.tensor(weights)
        super().__init__(torch.nn.Identity(), Batch(zeros, zeros.long(), zeros.long(), weights))
        self.features, self.losses = features, torch.tensor(losses)


def test_the_total_is_the_weighted_contrast_and_the_mean_cross_entropy_of_all_examples():
    features, losses = torch.randn(6, 4, generator=stream()), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    contrasted = float(contrast(features[:2], features[2:4], features[4:], 0.1))
    assert float(CncLoss(0.1, 0.75)(Given(features, losses))) == pytest.approx(0.75 * contrasted + 0.25 * 3.5)
    assert float(CncLoss(0.1, 0.0)(Given(features, losses, [6.0, 0, 0, 0, 0, 0]))) == pytest.approx(1)


def test_two_sided_the_contrast_with_exchanged_roles_is_added():
    features = torch.randn(8, 4, generator=stream())
    a, p, n, of_positives = features.split(2)
    both = float(contrast(a, p, n, 0.1)) + float(contrast(p, a, of_positives, 0.1))
    assert float(CncLoss(0.1, 1.0, two_sided=True)(Given(features, [9.0] * 8))) == pytest.approx(both)


def test_batches_of_somebody_else_are_refused():
    with pytest.raises(ConfigError, match="8 examples, which don't divide into 3 roles"):
        CncLoss()(Given(torch.zeros(8, 2), [1.0] * 8))


# ------------------------------------------------------------------------------------------------------ the policy


class Threshold(torch.nn.Module):
    """Predicts class 1 where the first input is positive; has a parameter so that it can be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.stack([-x[:, 0], x[:, 0]], 1) * self.scale


def curated(examples: Examples, policy, epochs: int) -> list[tuple[int, Plan, list[list[int]]]]:
    """Stage, plan and mini-batches of every epoch."""
    model = Threshold()
    curator = Curator(examples, policy, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [
        (curator.stage, curator.plan, [batch.positions.tolist() for batch in curator])
        for _ in curator.epochs(epochs, model, optimizer)
    ]


FOUR_CELLS = Examples.of(torch.tensor([-1.0, -1, 1, 1, 1, -1] * 4)[:, None], [0, 0, 0, 1, 1, 1] * 4)


def test_groups_are_the_cells_of_class_and_prediction():
    plan = curated(FOUR_CELLS, Cnc(set_size=2), 1)[1][1]
    assert plan.groups.tolist() == [0, 0, 1, 3, 3, 2] * 4


def test_batches_are_drawn_anew_every_epoch_without_another_start():
    epochs = curated(FOUR_CELLS, Cnc(infer_epoch=2, set_size=2), 4)
    assert [stage for stage, _, _ in epochs] == [0, 0, 1, 1, 1, 1]
    assert all(plan.batches is None for _, plan, _ in epochs[:2])
    drawn = [plan.batches for _, plan, _ in epochs[2:]]
    assert all(not torch.equal(one, two) for one, two in pairwise(drawn))
    assert all(torch.equal(plan.groups, epochs[2][1].groups) for _, plan, _ in epochs[2:])


def test_an_epoch_has_as_many_batches_as_one_pass_over_the_anchors_takes():
    *_, (_, plan, batches) = curated(FOUR_CELLS, Cnc(set_size=2), 1)
    assert len(batches) == len(plan.batches) == 16 // 2
    assert all(batch in plan.batches.tolist() for batch in batches)


def test_only_what_earlier_policies_left_is_used():
    class FirstHalf(Uniform):
        name = "first-half"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 12)

    *_, (_, plan, _) = curated(FOUR_CELLS, FirstHalf() >> Cnc(set_size=2), 1)
    assert sorted(set(plan.batches.flatten().tolist())) == list(range(12))


def test_a_class_that_is_in_no_batch_is_warned_about():
    class ThreeWays(Threshold):
        def forward(self, x):
            return torch.stack([x[:, 0] == 0, x[:, 0] == 1, x[:, 0] == 2], 1) * self.scale

    examples = Examples.of(torch.tensor([0.0, 1, 1, 0, 2])[:, None], [0, 0, 1, 1, 2])
    curator, model = Curator(examples, Cnc(set_size=1)), ThreeWays()
    epochs = curator.epochs(1, model, torch.optim.SGD(model.parameters(), lr=0.1))
    next(epochs)
    with pytest.warns(HoldfastWarning, match="no example of y2, which the first stage confuses with no other class"):
        next(epochs)


@pytest.mark.parametrize("two_sided", [False, True])
def test_training_brings_anchors_and_positives_together(two_sided):
    splits, policy = toy_splits(), Cnc(set_size=4, weight=1.0, tau=0.5, two_sided=two_sided)
    angles = []

    class Watched(CncLoss):
        def __call__(self, forward):
            anchors, positives, *_ = forward.features.detach().chunk(4 if two_sided else 3)
            angles.append(float(F.cosine_similarity(anchors[:, None], positives[None], dim=2).mean()))
            return super().__call__(forward)

    policy.objective = lambda: Watched(0.5, 1.0, two_sided)
    fit(toy_model(), splits, policy, Training(epochs=10, batch_size=8, learning_rate=0.05))
    tenth = len(angles) // 10
    assert sum(angles[-tenth:]) / tenth > sum(angles[:tenth]) / tenth + 0.1


def test_features_and_logits_come_from_one_pass():
    model, calls = toy_model(), []
    model.body.register_forward_hook(lambda *_: calls.append(1))
    batch = Batch(torch.randn(6, 6), torch.zeros(6).long(), torch.arange(6), torch.ones(6))
    CncLoss()(Forward(model, batch))
    assert len(calls) == 1


def test_its_groups_serve_other_methods():
    """SpuCo's CnC inference always raises."""
    policy = InferGroups(Cnc(set_size=2)) >> GroupBalanced()
    first, *later = curated(FOUR_CELLS, policy, 3)
    assert first[1].groups is None
    for _, plan, _ in later:
        assert plan.batches is None
        assert plan.shares(plan.groups).tolist() == pytest.approx([0.25] * 4)


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)

    def go(run, listeners=()):
        return fit(toy_model(), toy_splits(), Cnc(set_size=4), SETTINGS, run=run, listeners=listeners)

    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = go(straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            go(broken, [stop_after(steps)])
    result = go(broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


@pytest.mark.parametrize(
    "options",
    [{"infer_epoch": 0}, {"set_size": 0}, {"tau": 0.0}, {"weight": 1.1}, {"weight": math.nan}, {"tau": math.nan}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of cnc is"):
        Cnc(**options)
