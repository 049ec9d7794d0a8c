import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn

from holdfast.data import Examples, Splits
from holdfast.errors import ConfigError, DataError
from holdfast.models import LinearClassifier
from holdfast.spurious.group_inference.base import GroupInference, InferGroups
from holdfast.spurious.last_layer.dfr import (
    DfrTrain,
    DfrVal,
    LinearRule,
    Option,
    Refit,
    Standardisation,
    fit_l1,
    mean_rule,
    write_head,
)
from holdfast.spurious.reweighting.balancing import balanced_subset
from holdfast.streams import derive_seed, torch_stream
from holdfast.training import Curator, GroupReport, Plan, Run, Trained, Training, Uniform, evaluate, fit, predict
from tests.training.test_resume import StopHere, fingerprint, stop_after
from tests.training.toy import toy_examples, toy_model, toy_splits

SETTINGS = Training(epochs=2, batch_size=8, learning_rate=0.02, checkpoint_seconds=0, select_by="accuracy")
EVEN = (1.0, 1.0)


def spurious_features(n: int, correlation: float, seed: int, n_classes: int = 2) -> Examples:
    """A core feature that is weak and always right, a spurious one that is strong, noise, and one that is constant.

    The offsets and scales differ widely, so that leaving out the standardisation is noticed.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % n_classes
    agree = torch.rand(n, generator=generator) < correlation
    attributes = torch.where(agree, labels, torch.randint(n_classes, (n,), generator=generator))
    noise = torch.randn(n, 2 * n_classes, generator=generator)
    core = nn.functional.one_hot(labels, n_classes) + 0.6 * noise[:, :n_classes]
    spurious = nn.functional.one_hot(attributes, n_classes) + 0.05 * noise[:, n_classes:]
    inputs = torch.cat([50 + 0.01 * core, 30 * spurious - 7, torch.randn(n, 3, generator=generator)], 1)
    inputs = torch.cat([inputs, torch.full((n, 1), 4.0)], 1)
    return Examples.of(inputs, labels, attributes=attributes)


def spurious_splits(n_classes: int = 2) -> Splits:
    parts = [(600, 0.9, 0), (300, 0.2, 1), (300, 0.0, 2)]
    return Splits("spurious", *(spurious_features(n, correlation, s, n_classes) for n, correlation, s in parts))


def untrained(splits: Splits, seed: int = 0) -> Trained:
    """A model whose features are its inputs, as if its training had ended."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LinearClassifier(splits.train.input_shape, splits.train.n_classes)
    return Trained(model, splits, seed=3)


def inputs_of(examples: Examples) -> np.ndarray:
    return examples.inputs.gather(torch.arange(len(examples))).numpy()


def logits_of(trained: Trained, examples: Examples) -> torch.Tensor:
    with torch.no_grad():
        return trained.model(torch.from_numpy(inputs_of(examples)))


def sklearn_average(part: Examples, scaler: StandardScaler, method: str, fits: int, C: float) -> LogisticRegression:
    """The published procedure: scikit-learn's regression with the means of the coefficients put into it."""
    models = []
    for number in range(fits):
        keep = balanced_subset(part.groups, torch_stream(3, method, "redraw", number))
        seed = derive_seed(3, method, "redraw", number) % 2**32
        model = LogisticRegression(solver="liblinear", l1_ratio=1, C=C, random_state=seed)
        models.append(model.fit(scaler.transform(inputs_of(part).astype(float)[keep]), part.labels[keep]))
    models[0].coef_ = np.mean([model.coef_ for model in models], 0)
    models[0].intercept_ = np.mean([model.intercept_ for model in models], 0)
    return models[0]


@pytest.mark.parametrize("policy", [DfrTrain(fits=3), DfrVal(fits=4)], ids=["train", "val"])
def test_the_model_gives_the_averaged_regressions_probabilities(policy):
    splits = spurious_splits()
    trained = untrained(splits)
    said = policy.post_training()(trained)
    scaler = StandardScaler().fit(inputs_of(splits.train).astype(float))
    part = splits.train if policy.part == "train" else splits.validation
    expected = sklearn_average(part, scaler, policy.name, policy.fits, said["C"])
    test = scaler.transform(inputs_of(splits.test).astype(float))
    probabilities = logits_of(trained, splits.test).softmax(1).numpy()
    np.testing.assert_allclose(probabilities, expected.predict_proba(test), atol=2e-3)
    clear = np.abs(expected.decision_function(test)) > 0.02
    assert clear.mean() > 0.9
    assert (predict(trained.model, splits.test).predicted.numpy() == expected.predict(test))[clear].all()


def test_more_than_two_classes_are_fitted_one_against_the_rest():
    """The released code fails here: scikit-learn's liblinear refuses three classes."""
    splits = spurious_splits(3)
    features, labels = inputs_of(splits.train).astype(float), splits.train.labels.numpy()
    scale = Standardisation.of(torch.from_numpy(features))
    rule = fit_l1(scale.apply(torch.from_numpy(features)), labels, Option(0.3, (1.0, 1.0, 1.0)), seed=7)
    one = LogisticRegression(solver="liblinear", l1_ratio=1, C=0.3, random_state=7)
    oracle = OneVsRestClassifier(one).fit(StandardScaler().fit_transform(features), labels)
    np.testing.assert_allclose(rule.coef, [model.coef_[0] for model in oracle.estimators_], atol=1e-6)
    model = LinearClassifier(splits.train.input_shape, 3).double()
    write_head(model.head, rule, scale)
    decided = model(torch.from_numpy(features)).argmax(1).numpy()
    assert (decided == oracle.predict(StandardScaler().fit_transform(features))).all()
    assert (decided == rule.predict(scale.apply(torch.from_numpy(features)))).all()


def test_a_head_of_three_classes_is_refitted():
    splits = spurious_splits(3)
    trained = untrained(splits)
    said = DfrVal(fits=2, C=(0.3, 0.1)).post_training()(trained)
    assert len(said["class_weights"]) == 3
    attributes_agree = (splits.test.attributes == splits.test.labels).float().mean()
    assert (logits_of(trained, splits.test).argmax(1) == splits.test.labels).float().mean() > 2 * attributes_agree


def test_standardising_is_undone_in_the_head():
    scale = Standardisation(np.array([2.0, -1.0]), np.array([4.0, 0.5]))
    layer, x = nn.Linear(2, 2).double(), torch.tensor([[3.0, 5.0], [-2.0, 0.25]], dtype=torch.float64)
    write_head(layer, LinearRule(np.array([[0.8, -0.1]]), np.array([0.3])), scale)
    z = [0.8 * (3 - 2) / 4 - 0.1 * (5 + 1) / 0.5 + 0.3, 0.8 * (-2 - 2) / 4 - 0.1 * (0.25 + 1) / 0.5 + 0.3]
    assert layer(x).flatten().tolist() == pytest.approx([-z[0] / 2, z[0] / 2, -z[1] / 2, z[1] / 2])


def test_a_feature_that_never_changes_is_not_divided_by_zero():
    scale = Standardisation.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert (scale.mean.tolist(), scale.deviation.tolist()) == ([2.0, 5.0], [1.0, 1.0])


def test_coefficients_are_averaged():
    rules = [LinearRule(np.array([[1.0, 2.0]]), np.array([3.0])), LinearRule(np.array([[3.0, 0.0]]), np.array([-1.0]))]
    mean = mean_rule(rules)
    assert (mean.coef.tolist(), mean.intercept.tolist()) == ([[2.0, 1.0]], [1.0])


def test_the_weight_of_a_class_counts_like_copies_of_its_examples():
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(40, 3)), np.arange(40) % 2
    tripled = np.concatenate([np.arange(40), np.repeat(np.flatnonzero(labels), 2)])
    weighed = fit_l1(features, labels, Option(0.5, (1.0, 3.0)), 0)
    repeated = fit_l1(features[tripled], labels[tripled], Option(0.5, EVEN), 0)
    np.testing.assert_allclose(weighed.coef, repeated.coef, atol=1e-3)
    assert not np.allclose(weighed.intercept, fit_l1(features, labels, Option(0.5, EVEN), 0).intercept, atol=0.1)


@pytest.mark.parametrize("policy", [DfrTrain(), DfrVal()], ids=["train", "val"])
def test_a_linear_rule_is_recovered_from_features_that_hold_a_stronger_spurious_one(policy):
    splits = spurious_splits()
    scaler = StandardScaler().fit(inputs_of(splits.train))
    plain = LogisticRegression().fit(scaler.transform(inputs_of(splits.train)), splits.train.labels)
    trained = untrained(splits)
    policy.post_training()(trained)
    before = GroupReport.of(plain.predict(scaler.transform(inputs_of(splits.test))), splits.test).worst_accuracy
    after = evaluate(trained.model, splits.test).worst_accuracy
    assert before < 0.6
    assert after > 0.8
    weight = (trained.model.head.weight[1].detach().numpy() * inputs_of(splits.train).std(0))[:-1]
    assert weight[0] < 0 < weight[1]
    assert np.abs(weight[:2]).min() > 4 * np.abs(weight[2:]).max()


def test_c_is_the_first_best_by_worst_group_accuracy_on_validation_data():
    said = DfrTrain(fits=1, C=(0.3, 1e-6, 0.2999999)).post_training()(untrained(spurious_splits()))
    scores = [one["worst_accuracy"] for one in said["scores"]]
    assert scores[0] == scores[2] > scores[1]
    assert said["C"] == 0.3


def test_what_is_tuned_on_validation_is_fitted_on_one_half_and_scored_on_the_other(monkeypatch):
    splits, judged = spurious_splits(), []
    of = GroupReport.of
    monkeypatch.setattr(
        "holdfast.spurious.last_layer.dfr.GroupReport.of",
        lambda p, examples, **k: judged.append(examples) or of(p, examples, **k),
    )
    fitted = []
    monkeypatch.setattr(
        "holdfast.spurious.last_layer.dfr._Pool.fit",
        lambda pool, option, seed: fitted.append(pool.examples) or LinearRule(np.zeros((1, 8)), np.zeros(1)),
    )
    DfrVal(fits=2, C=(1.0,)).post_training()(untrained(splits))
    tuned, held_out = set(fitted[0].ids.tolist()), set(judged[0].ids.tolist())
    assert not tuned & held_out
    counts = torch.bincount(judged[0].groups)
    assert (counts - splits.validation.group_counts() / 2).abs().max() <= 0.5
    assert len(fitted) == 3
    assert all(torch.bincount(one.groups).unique().numel() == 1 for one in fitted)
    assert set(fitted[1].ids.tolist()) & held_out


def test_class_weights_are_tried_one_class_at_a_time():
    options = Refit("dfr-val", "validation", 1, (1.0, 0.1), (2.0, 10.0))._options(2)
    assert [option.class_weights for option in options[:5]] == [EVEN, (2, 1), (10, 1), (1, 2), (1, 10)]
    assert [option.C for option in options] == [1.0] * 5 + [0.1] * 5


def test_what_was_done_is_told_in_plain_values():
    said = DfrTrain(fits=2, C=(0.3,)).post_training()(untrained(spurious_splits()))
    smallest = int(spurious_splits().train.group_counts().min())
    assert said["redraw_examples"] == said["tuning_examples"] == 4 * smallest
    assert (said["method"], said["refitted_on"], said["C"], said["fits"]) == ("dfr-train", "train", 0.3, 2)
    assert json.loads(json.dumps(said))["scores"][0]["C"] == 0.3


def test_a_seed_gives_the_same_head_again_and_another_seed_another_one():
    def weights(seed: int) -> list[list[float]]:
        trained = untrained(spurious_splits())
        DfrTrain(fits=2, C=(0.1,)).post_training()(Trained(trained.model, trained.splits, seed))
        return trained.model.head.weight.tolist()

    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert weights(0) == weights(0) != weights(1)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


def test_only_the_head_of_the_best_weights_changes():
    plain = fit(toy_model(), toy_splits(), Uniform(), SETTINGS).model.state_dict()
    ended = []
    result = fit(toy_model(), toy_splits(), DfrVal(fits=2), SETTINGS, listeners=[ended.append])
    refitted = result.model.state_dict()
    assert {name for name in plain if not torch.equal(plain[name], refitted[name])} == {"head.weight", "head.bias"}
    assert ended[-1].values["finish"]["method"] == "dfr-val"


def test_groups_that_another_policy_inferred_are_used():
    splits = toy_splits()
    blind = Splits("blind", Examples.of(inputs_of(splits.train), splits.train.labels), splits.validation, splits.test)
    inferred = torch.arange(60) // 15

    class Known(GroupInference):
        name = "known"

        def infer(self, context):
            return inferred

        def plan_from_groups(self, context, groups):
            return Plan()

    ended = []
    fit(toy_model(), blind, InferGroups(Known()) >> DfrTrain(fits=1, C=(1.0,)), SETTINGS, listeners=[ended.append])
    assert ended[-1].values["finish"]["redraw_examples"] == 60
    inferred = torch.arange(60) // 58
    fit(toy_model(), blind, InferGroups(Known()) >> DfrTrain(fits=1, C=(1.0,)), SETTINGS, listeners=[ended.append])
    assert ended[-1].values["finish"]["redraw_examples"] == 2 * 2


def test_missing_groups_are_named_before_training():
    splits = toy_splits()
    blind = Examples.of(inputs_of(splits.train), splits.train.labels)
    with pytest.raises(DataError, match="dfr-train needs a group per training example"):
        fit(toy_model(), Splits("blind", blind, splits.validation, splits.test), DfrTrain(), SETTINGS)
    with pytest.raises(DataError, match="dfr-val refits the last layer on groups of the validation set and it has"):
        fit(toy_model(), Splits("blind", splits.train, blind, splits.test), DfrVal(), SETTINGS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2, bias=False)), "the head '1' of Sequential has no bias"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)), "has 3 outputs and the data 2 classes"),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2), nn.Softmax(1)), "something is applied after it"),
    ],
    ids=["no bias", "outputs", "softmax"],
)
def test_a_head_that_cannot_be_refitted_is_refused_before_training(model, message):
    events = []
    with pytest.raises(ConfigError, match=message):
        fit(model, toy_splits(), DfrTrain(), SETTINGS, listeners=[events.append])
    assert [event.kind for event in events] == ["start"]


def test_a_class_without_examples_is_named():
    splits = spurious_splits()
    ones = splits.validation.subset(splits.validation.labels.nonzero().flatten())
    with pytest.raises(DataError, match="dfr-val refits every class of the head and has no example of y0"):
        DfrVal().post_training()(untrained(Splits("ones", splits.train, ones, splits.test)))


@pytest.mark.parametrize(("method", "part"), [(DfrVal(), "validation"), (DfrTrain(), "train")])
def test_a_class_without_examples_is_named_before_anything_is_trained(method, part):
    events, splits = [], spurious_splits()
    whole = getattr(splits, part)
    ones = whole.subset(whole.labels.nonzero().flatten())
    lacking = replace(splits, **{part: ones})
    with pytest.raises(DataError, match=f"{method.name} refits every class of the head and has no example of y0"):
        fit(untrained(splits).model, lacking, method, SETTINGS, listeners=[events.append])
    assert [event.kind for event in events] == ["start"]


def test_the_plan_has_no_opinion():
    curator = Curator(toy_examples(), DfrTrain())
    curator.start(toy_model())
    assert curator.plan.same_as(Plan())


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.training.fitting._STEP_EVENTS_PER_SECOND", 1e9)
    straight, broken = Run.create(tmp_path / "straight", {}), Run.create(tmp_path / "broken", {})
    expected = fit(toy_model(), toy_splits(), DfrVal(fits=2), SETTINGS, run=straight)
    total = straight.metrics()[-1]["step"]
    for steps in (1, total // 2, total - 2):
        with pytest.raises(StopHere):
            fit(toy_model(), toy_splits(), DfrVal(fits=2), SETTINGS, run=broken, listeners=[stop_after(steps)])
    result = fit(toy_model(), toy_splits(), DfrVal(fits=2), SETTINGS, run=broken)
    assert fingerprint(result.model) == fingerprint(expected.model)
    events = [json.loads((run.path / "results.json").read_text())["finish"] for run in (straight, broken)]
    assert events[0] == events[1]


@pytest.mark.parametrize("options", [{"fits": 0}, {"C": ()}, {"C": (0.1, -1.0)}, {"class_weights": (0.0,)}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=f"{next(iter(options))} of dfr-train is"):
        DfrTrain(**options)
