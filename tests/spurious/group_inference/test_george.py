import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from sklearn.decomposition import PCA
from torch import nn

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.spurious import InferGroups, Pde
from holdfast.spurious.group_inference.george import George, log_odds, principal_components, umap_embedding
from holdfast.training import Curator, Plan, PlannedTraining, Run, Training, Uniform, fit
from tests.spurious.group_inference.test_jtt import Threshold, of_first_input
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

#: Groups are looked at here; what these loops train is beside the point.
pytestmark = pytest.mark.filterwarnings("ignore:.* has a loss of its own")

SETTINGS = Training(epochs=3, batch_size=8, learning_rate=0.02, checkpoint_seconds=0)


def test_log_odds_are_a_function_of_the_loss():
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(20) % 5
    losses = F.cross_entropy(logits, labels, reduction="none")
    assert torch.allclose(F.softplus(-log_odds(logits, labels)[:, 0]), losses, atol=1e-6)


def test_log_odds_of_two_classes_are_the_component_across_the_decision_boundary():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(30, 7, generator=generator)
    head = nn.Linear(7, 2)
    across = head.weight[1] - head.weight[0]
    hardness = features @ across / across.norm()
    expected = hardness * across.norm() + head.bias[1] - head.bias[0]
    labels = torch.ones(30, dtype=torch.int64)
    assert torch.allclose(log_odds(head(features), labels)[:, 0], expected, atol=1e-5)


def test_log_odds_stay_finite_where_the_probability_is_one():
    assert log_odds(torch.tensor([[200.0, 0.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(
        200 - 0.6931, abs=1e-3
    )


def test_principal_components_are_those_of_scikit_learn():
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 7)
    expected = PCA(3).fit_transform(features.numpy())
    assert torch.allclose(principal_components(features, 3).abs(), torch.from_numpy(expected).abs().double(), atol=1e-4)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingDependencyError, match=r"holdfast\[umap\]"):
        umap_embedding(torch.zeros(3, 2), 2, seed=0)
    with pytest.raises(MissingDependencyError, match="set reduce to pca"):
        fit(toy_model(), toy_splits(), George(infer_epoch=1, reduce="umap"), SETTINGS)


def test_umap_gets_the_published_options_and_a_seed(monkeypatch):
    asked = {}

    class Stub:
        def __init__(self, **options):
            asked.update(options)

        def fit_transform(self, features):
            return features[:, :2]

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Stub))
    features = torch.randn(9, 4)
    assert torch.equal(umap_embedding(features, 2, seed=1), features[:, :2])
    seed = asked.pop("random_state")
    assert asked == {"n_components": 2, "n_neighbors": 10, "min_dist": 0.0}
    umap_embedding(features, 2, seed=2)
    assert asked["random_state"] != seed


def test_plain_training_is_as_long_as_the_budget_unless_told_otherwise():
    george, source = George(), InferGroups(George())
    for policy in (george, source):
        policy.validate(PlannedTraining(7))
        assert policy.warmup_epochs == 7
        policy.validate(PlannedTraining(4))
        assert policy.warmup_epochs == 4
    fixed = George(infer_epoch=2)
    fixed.validate(PlannedTraining(7))
    assert fixed.warmup_epochs == 2


@pytest.mark.parametrize(("infer_epoch", "stages"), [(0, [0, 0, 0, 1, 1, 1]), (1, [0, 1, 1, 1])])
def test_training_starts_again_after_plain_training(infer_epoch, stages):
    result = fit(toy_model(), toy_splits(), George(infer_epoch=infer_epoch), SETTINGS)
    assert [record["stage"] for record in result.history] == stages


def test_a_loop_that_does_not_tell_the_budget_is_asked_for_the_epochs():
    model = toy_model()
    curator = Curator(toy_examples(), George())
    with pytest.raises(ConfigError, match="was not told it; set infer_epoch"):
        next(curator.steps(3, model, torch.optim.SGD(model.parameters(), lr=0.1)))


def plan_of(examples, policy) -> Plan:
    model = Threshold()
    curator = Curator(examples, policy, batch_size=4)
    for _ in curator.epochs(1, model, torch.optim.SGD(model.parameters(), lr=0.1)):
        pass
    return curator.plan


VALUES = [-3.0, -3.1, -2.9, 4.0, 4.1, 3.0, 3.1, -4.0]


def test_groups_are_clusters_of_each_class_and_are_drawn_equally_often():
    plan = plan_of(of_first_input(VALUES, [0, 0, 0, 0, 0, 1, 1, 1]), George(k_max=2))
    assert plan.groups.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert plan.shares(plan.groups).tolist() == pytest.approx([0.25] * 4)


def test_only_what_earlier_policies_left_is_clustered():
    class WithoutLast(Uniform):
        name = "without-last"

        def update(self, context):
            return Plan(copies=torch.arange(len(context.examples)) < 7)

    plan = plan_of(of_first_input([*VALUES[:7], 900.0], [0, 0, 0, 0, 0, 1, 1, 1]), WithoutLast() >> George(k_max=2))
    assert plan.groups.tolist()[:7] == [0, 0, 0, 1, 1, 2, 3]
    assert plan.sample_weight[7] == 0


@pytest.mark.parametrize("reduce", ["none", "pca"])
def test_features_can_be_clustered(reduce):
    george = George(infer_epoch=1, reduce=reduce, clustering="kmeans", k_max=3)
    examples, model = toy_examples(60), toy_model()
    curator = Curator(examples, george, batch_size=8)
    for _ in curator.epochs(1, model, torch.optim.SGD(model.parameters(), lr=0.05)):
        pass
    groups = curator.plan.groups
    in_class = [set(groups[examples.labels == label].tolist()) for label in (0, 1)]
    assert not in_class[0] & in_class[1]
    assert all(len(found) in (2, 3) for found in in_class)


def test_more_components_than_features_are_all_of_them():
    fit(toy_model(), toy_splits(), George(infer_epoch=1, reduce="pca", components=99, k_max=2), SETTINGS)


class Watched(George):
    """Keeps the loss that `fit` trains with."""

    def objective(self):
        self.loss = super().objective()
        return self.loss


def test_the_second_stage_is_group_dro_on_the_clusters_with_a_size_adjustment():
    watched = Watched(k_max=2)
    fit(toy_model(), toy_splits(), watched, SETTINGS)
    assert watched.loss.adjustment == 2
    assert len(watched.loss.q) == 4


def test_other_methods_can_use_the_clusters():
    policy = InferGroups(George(k_max=2)) >> Pde(first_expansion=1, every=1, added=4)
    result = fit(toy_model(), toy_splits(), policy, SETTINGS)
    assert [record["stage"] for record in result.history] == [0, 0, 0, 1, 1, 1]
    assert result.history[3]["examples"] < 60 == result.history[0]["examples"]


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), George(k_max=3), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 3, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), George(k_max=3), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), George(k_max=3), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    assert result.history == expected.history


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("infer_epoch", -1, "infer_epoch of george is -1"),
        ("k_max", 1, "k_max of george is 1; give at least 2"),
        ("components", 0, "components of george is 0"),
        ("overcluster", 0, "overcluster of george is 0"),
        ("adjustment", -1.0, "adjustment of group-dro is -1"),
        ("reduce", "losses", "reduce of george can't be 'losses'; did you mean 'loss'"),
        ("clustering", "gm", "clustering of george can't be 'gm'; did you mean 'gmm'"),
    ],
)
def test_options_that_make_no_sense_are_refused(option, value, message):
    with pytest.raises(ConfigError, match=message):
        George(**{option: value})
