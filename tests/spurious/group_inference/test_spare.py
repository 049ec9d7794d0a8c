import json
import logging
import warnings

import pytest
import torch
from scipy.stats import chisquare

from holdfast.data import Examples
from holdfast.data.sets.images.coloured import ColouredDigits
from holdfast.errors import CheckpointError, ConfigError, DataError, HoldfastWarning
from holdfast.models import build
from holdfast.spurious import balance_weights
from holdfast.spurious.group_inference.partition import ClusterPartition, Separation
from holdfast.spurious.group_inference.quality import judge_groups
from holdfast.spurious.group_inference.separation import sampling_probabilities, separate
from holdfast.spurious.group_inference.spare import Spare
from holdfast.training import Clock, Curator, ResetOptimizer, Restart, Training, fit
from holdfast.training.state import load_state, save_state
from tests.training.policies import Growing
from tests.training.toy import toy_examples, toy_model


def outputs_of(sizes, d=3, spread=0.01, seed=0):
    """Well separated clusters of outputs: sizes[c] are the cluster sizes of class c. Returns also the true cluster."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([c for c, parts in enumerate(sizes) for n in parts for _ in range(n)])
    clusters = torch.tensor([j for parts in sizes for j, n in enumerate(parts) for _ in range(n)])
    centres = 5 * torch.eye(max(len(parts) for parts in sizes), d) + labels[:, None, None]
    points = centres[torch.arange(len(labels)), clusters]
    return points + spread * torch.randn(len(labels), d, generator=generator), labels, clusters


def one_class(sizes, lambda_):
    clusters = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    p = sampling_probabilities(torch.zeros_like(clusters), clusters, {0: lambda_})
    return torch.bincount(clusters, weights=p).tolist()


# ------------------------------------------------------------------------------------------------- probabilities


@pytest.mark.parametrize(
    ("sizes", "lambda_", "expected"),
    [
        ((3476, 206), 2, (0.056, 0.944)),
        ((176, 937), 2, (0.842, 0.158)),
        ((3476, 206), 1, (0.5, 0.5)),
        ((70, 20, 10), 1, (1 / 3, 1 / 3, 1 / 3)),
        ((75, 25), 0, (0.75, 0.25)),
        ((12,), 2, (1.0,)),
    ],
)
def test_cluster_shares_of_the_spec(sizes, lambda_, expected):
    assert one_class(sizes, lambda_) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_a_cluster_has_the_share_of_its_size_to_one_minus_lambda(lambda_):
    sizes = (400, 30, 7, 1)
    powers = [n ** (1 - lambda_) for n in sizes]
    assert one_class(sizes, lambda_) == pytest.approx([power / sum(powers) for power in powers])


def test_the_published_audit_gets_the_shares_the_spec_works_out():
    """Spec 8.11: landbird minority 64 % of its class, waterbird minority 24 % with lambda 2; 34 % and 14 % with 1."""
    for lambda_, expected in ((2, (0.64, 0.24)), (1, (0.34, 0.14))):
        up, down = one_class((206, 3476), lambda_)
        landbird = up * 139 / 206 + down * 45 / 3476
        up, down = one_class((176, 937), lambda_)
        assert (landbird, up * 50 / 176 + down * 6 / 937) == pytest.approx(expected, abs=6e-3)


def test_classes_have_equal_mass_whatever_their_lambda_or_the_mass_they_have():
    labels = torch.tensor([0] * 90 + [2] * 10)
    clusters = torch.tensor([0] * 80 + [1] * 10 + [0] * 8 + [1] * 2)
    lambda_ = {0: 1.0, 2: 2.0}
    equal = sampling_probabilities(labels, clusters, lambda_)
    natural = sampling_probabilities(labels, clusters, lambda_, "natural")
    assert equal.sum() == pytest.approx(1)
    assert torch.bincount(labels, weights=equal).tolist() == pytest.approx([0.5, 0, 0.5])
    assert torch.bincount(labels, weights=natural).tolist() == pytest.approx([0.9, 0, 0.1])
    assert torch.allclose(natural[labels == 0] / 0.9, equal[labels == 0] / 0.5)


def test_lambda_belongs_to_its_class_also_when_class_1_comes_first():
    labels = torch.tensor([1] * 10 + [0] * 10)
    clusters = torch.tensor(([0] * 8 + [1] * 2) * 2)
    p = sampling_probabilities(labels, clusters, {1: 2.0, 0: 1.0})
    assert 2 * float(p[8:10].sum()) == pytest.approx(0.8)
    assert 2 * float(p[18:].sum()) == pytest.approx(0.5)


def test_an_unknown_class_mass_is_named():
    zero = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ConfigError, match="did you mean 'natural'"):
        sampling_probabilities(zero, zero, {0: 1.0}, "naturel")


# ---------------------------------------------------------------------------------------------------- separation


@pytest.mark.parametrize("d", [3, 40])
def test_clusters_of_every_class_are_found_and_counted(d):
    outputs, labels, truth = outputs_of([(50, 9, 4), (60, 20)], d=d)
    partition = separate(outputs, labels)
    assert {c: s.k for c, s in partition.classes.items()} == {0: 3, 1: 2}
    assert torch.equal(partition.clusters, truth)
    for separation in partition.classes.values():
        assert list(separation.curve) == [2, 3, 4, 5]
        assert separation.silhouette.value == max(score.value for score in separation.curve.values()) > 0.95
        assert separation.lambda_ == 1
    assert partition.p.sum() == pytest.approx(1)
    assert torch.bincount(partition.groups, weights=partition.p).tolist() == pytest.approx([1 / 6] * 3 + [1 / 4] * 2)


def test_badly_separated_classes_get_the_high_lambda_under_their_own_id():
    tight, labels, _ = outputs_of([(40, 10), (40, 10)], seed=1)
    loose = tight + 1.2 * torch.randn(tight.shape, generator=torch.Generator().manual_seed(0)) * (labels == 1)[:, None]
    order = torch.cat([torch.arange(50, 100), torch.arange(50)])  # class 1 comes first
    with pytest.warns(HoldfastWarning, match=r"silhouette of class 1 \(0\.\d\d\) is under 0\.7"):
        partition = separate(loose[order], labels[order], lambda_high=3.0)
    assert {c: s.lambda_ for c, s in partition.classes.items()} == {0: 1.0, 1: 3.0}


def test_tau_is_reached_by_equality():
    outputs, labels, _ = outputs_of([(40, 10)], spread=0.3)
    score = separate(outputs, labels).classes[0].silhouette.value
    assert separate(outputs, labels, tau=score).classes[0].lambda_ == 1
    assert separate(outputs, labels, tau=score + 1e-9).classes[0].lambda_ == 2


@pytest.mark.parametrize("d", [2, 3])
def test_neither_order_nor_names_of_clusters_matter(d):
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(300, d, generator=generator).softmax(1)
    labels = torch.randint(2, (300,), generator=generator)
    order = torch.randperm(300, generator=generator)
    with pytest.warns(HoldfastWarning):
        one, other = separate(outputs, labels), separate(outputs[order], labels[order])
    assert torch.equal(one.clusters[order], other.clusters)
    assert torch.equal(one.p[order], other.p)
    assert one.classes == other.classes
    lambdas = {c: s.lambda_ for c, s in one.classes.items()}
    renamed = torch.tensor([4, 2, 0, 1, 3])[one.clusters]
    assert torch.allclose(sampling_probabilities(labels, renamed, lambdas), one.p, rtol=1e-12)


def test_equal_silhouettes_keep_the_smaller_number(monkeypatch):
    from holdfast.primitives.silhouette import SilhouetteScore

    monkeypatch.setattr(
        "holdfast.spurious.group_inference.separation.silhouette_score", lambda *_, **__: SilhouetteScore(0.8, "exact")
    )
    outputs, labels, _ = outputs_of([(20, 10, 5)])
    partition = separate(outputs, labels)
    assert partition.classes[0].k == int(partition.clusters.max()) + 1 == 2


@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_constant_outputs_are_one_cluster_with_a_warning(noise):
    outputs, labels, _ = outputs_of([(20, 5), (10,)])
    outputs[labels == 1] = torch.tensor([0.2, 0.3, 0.5]) + noise * torch.rand(10, 3)
    with pytest.warns(HoldfastWarning, match="outputs of class 1 are constant"):
        partition = separate(outputs, labels)
    assert partition.classes[1] == Separation(1, 1.0, {})
    assert partition.classes[1].silhouette is None
    assert partition.p[labels == 1].tolist() == pytest.approx([0.05] * 10)


def test_one_cluster_per_class_is_class_balancing():
    outputs, labels, _ = outputs_of([(20, 5), (10, 30)])
    partition = separate(outputs, labels, k=1)
    assert torch.allclose(partition.p, balance_weights(labels), rtol=1e-12)


def test_a_fixed_number_is_kept_up_to_the_number_of_different_outputs():
    outputs, labels, _ = outputs_of([(20, 5), (10, 30)], spread=0)
    outputs += 0.01 * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)) * (labels == 0)[:, None]
    with pytest.warns(HoldfastWarning):
        partition = separate(outputs, labels, k=4)
    assert {c: (s.k, list(s.curve)) for c, s in partition.classes.items()} == {0: (4, [4]), 1: (2, [2])}


def test_the_share_of_the_largest_cluster_is_logged(caplog):
    outputs, labels, _ = outputs_of([(94, 6)])
    with caplog.at_level(logging.INFO, "holdfast.spurious.group_inference.separation"):
        separate(outputs, labels)
    assert "class 0: 2 clusters, the largest with 94.0 %" in caplog.text


def test_outputs_that_make_no_sense_are_refused():
    labels = torch.zeros(4, dtype=torch.int64)
    broken = torch.rand(4, 2)
    broken[2, 1] = torch.nan
    with pytest.raises(DataError, match="outputs of 1 examples are not finite, the first at position 2"):
        separate(broken, labels)
    with pytest.raises(DataError, match=r"give \(n, d\) and \(n,\)"):
        separate(torch.rand(3, 2), labels)


# ------------------------------------------------------------------------------------------------- the partition


def test_groups_are_numbered_class_by_class_and_serve_other_methods():
    outputs, labels, truth = outputs_of([(50, 9, 4), (60, 20)])
    labels = 2 * labels  # class 1 has no examples
    partition = separate(outputs, labels)
    assert torch.equal(partition.groups, torch.where(labels == 0, truth, 3 + truth))
    examples = Examples.of(outputs, labels).with_groups(partition.groups, partition.group_names)
    assert examples.group_counts().tolist() == [50, 9, 4, 60, 20]
    assert examples.group_names[3] == "class 2, cluster 0"


def test_a_saved_partition_comes_back_and_damage_is_noticed(tmp_path):
    outputs, labels, _ = outputs_of([(50, 9, 4), (60, 20)])
    partition = separate(outputs, labels, ids=torch.arange(len(labels)) + 1000)
    partition.save(tmp_path / "epoch-2.partition")
    again = ClusterPartition.load(tmp_path / "epoch-2.partition")
    for name in ("ids", "labels", "clusters", "p"):
        assert torch.equal(getattr(again, name), getattr(partition, name))
    assert (again.classes, again.about) == (partition.classes, partition.about)
    assert json.loads((tmp_path / "epoch-2.partition.json").read_text())["classes"][1]["k"] == 2
    separate(outputs, labels).save(tmp_path / "other")
    (tmp_path / "other.npz").rename(tmp_path / "epoch-2.partition.npz")
    with pytest.raises(CheckpointError, match="does not belong to"):
        ClusterPartition.load(tmp_path / "epoch-2.partition")
    with pytest.raises(CheckpointError, match="can't be read as a partition"):
        ClusterPartition.load(tmp_path / "other")


def test_a_partition_checks_itself():
    two, p = torch.tensor([0, 1]), torch.tensor([0.5, 0.5], dtype=torch.float64)
    fine = {
        "ids": two,
        "labels": two,
        "clusters": 0 * two,
        "p": p,
        "classes": {c: Separation(1, 1.0, {}) for c in (0, 1)},
    }
    assert ClusterPartition(**fine).groups.tolist() == [0, 1]
    for change in (
        {"p": 2 * p},
        {"p": p.float()},
        {"clusters": two},
        {"clusters": -two},
        {"ids": two[:1]},
        {"classes": {0: Separation(1, 1.0, {})}},
        {"classes": {0: Separation(1, 1.0, {}), 1: Separation(2, 1.0, {})}},
    ):
        with pytest.raises(DataError):
            ClusterPartition(**{**fine, **change})


# ---------------------------------------------------------------------------------------------------- the policy


def train(curator, model, optimizer, epochs, look=lambda: None):
    with torch.random.fork_rng():
        torch.manual_seed(0)  # of dropout
        for _ in curator.epochs(epochs, model, optimizer):
            look()
            for x, y, _, _ in curator:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()


def toy_training(policy, seed=0):
    model = toy_model()
    return Curator(toy_examples(60), policy, batch_size=10, seed=seed), model, torch.optim.SGD(model.parameters(), 0.1)


def fixed(**options):
    """A policy whose silhouettes are not looked at, so that the toy causes no warnings."""
    return Spare(infer_epoch=1, k=1, **options)


def test_the_first_stage_is_extra_and_training_starts_again():
    curator, model, optimizer = toy_training(fixed())
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    seen = []

    def look():
        fresh = all(torch.equal(model.state_dict()[name], start[name]) for name in start)
        seen.append((curator.stage, fresh, curator.plan.sample_weight is None))

    train(curator, model, optimizer, 2, look)
    assert seen == [(0, True, True), (1, True, False), (1, False, False)]
    assert curator.examples_seen == 3 * 60


@pytest.mark.parametrize(
    ("policy", "warmup", "requests"),
    [
        (Spare(infer_epoch=1, k=1), 1, [Restart()]),
        (Spare(infer_epoch=1, k=1, restart=False), 0, [ResetOptimizer()]),
        (Spare(infer_epoch=0, k=1), 0, []),
    ],
)
def test_what_the_policy_asks_for(policy, warmup, requests):
    assert policy.warmup_epochs == warmup
    curator, model, optimizer = toy_training(policy)
    asked = curator.start(model, optimizer)
    if policy.infer_epoch:
        asked = curator.end_epoch(model, optimizer)
    assert asked == requests
    assert torch.allclose(curator.plan.sample_weight, torch.full((60,), 1 / 60, dtype=torch.float64))
    assert not policy.due(Clock(epoch=3, step=18))


@pytest.mark.parametrize("epochs", [300, 50, 20])
def test_the_cost_in_passes_of_plain_training(epochs):
    """Spec 9.1.9: Waterbirds 1.007, CelebA 1.02 (one epoch), CMNIST 1.1."""
    policy = Spare(infer_epoch=1 if epochs == 50 else 2)
    cost = (policy.warmup_epochs + epochs) / epochs
    assert cost == pytest.approx({300: 1.007, 50: 1.02, 20: 1.1}[epochs], abs=5e-4)


@pytest.mark.parametrize("output", ["softmax", "logits", "features"])
def test_outputs_are_those_of_the_model_in_evaluation_mode_in_order(output, monkeypatch):
    given = {}
    monkeypatch.setattr(
        "holdfast.spurious.group_inference.spare.separate",
        lambda outputs, labels, **_: given.update(x=outputs) or separate(outputs, labels, k=1),
    )
    policy = fixed(output=output, restart=False)
    curator, model, optimizer = toy_training(policy)
    curator.augment = lambda inputs, _: inputs + 100
    curator.start(model, optimizer)
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    curator.end_epoch(model, optimizer)
    assert model.training
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    model.eval()
    inputs, _ = curator.examples.gather(torch.arange(60))
    features = model.body(inputs)
    logits = model.head(features)
    expected = {"softmax": logits.softmax(1), "logits": logits, "features": features}[output]
    assert torch.allclose(given["x"], expected.detach(), atol=1e-6)


def test_what_an_earlier_policy_dropped_is_never_drawn():
    policy = fixed(restart=False)
    curator, model, optimizer = toy_training(Growing(first=20, step=0, after=99) >> policy)
    curator.start(model, optimizer)
    curator.end_epoch(model, optimizer)
    weights = curator.plan.sample_weight
    assert float(weights[20:].sum()) == 0
    assert float(weights[:20].sum()) == pytest.approx(1)
    assert policy.partition.ids.tolist() == list(range(20))


def test_draws_follow_p_and_an_epoch_has_as_many_as_examples():
    outputs, labels, _ = outputs_of([(40, 10), (7, 3)])
    policy = Spare(infer_epoch=0, output="logits")
    model = torch.nn.Linear(3, 3)
    torch.nn.init.eye_(model.weight)
    curator = Curator(Examples.of(outputs, labels), policy, batch_size=10)
    curator.start(model)
    assert policy.partition.p.unique().tolist() == pytest.approx([1 / 160, 1 / 40, 1 / 28, 1 / 12])
    drawn = torch.zeros(60)
    for _ in range(200):
        draws = curator.epoch_draws()
        assert len(draws) == 60
        drawn += torch.bincount(draws, minlength=60)
        curator.end_epoch(model)
    assert chisquare(drawn.double().numpy(), (12_000 * policy.partition.p).numpy()).pvalue > 0.001


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_a_resumed_run_has_the_partition_and_draws_the_same(tmp_path):
    straight, model, optimizer = toy_training(Spare(infer_epoch=1, k_max=3))
    train(straight, model, optimizer, 2)
    first, model, optimizer = toy_training(Spare(infer_epoch=1, k_max=3))
    assert first.chain.members[0].state_dict() == {}
    train(first, model, optimizer, 1)
    save_state({"curator": first.state_dict(), "model": model.state_dict()}, tmp_path / "state")
    state = load_state(tmp_path / "state")
    resumed, again, _ = toy_training(Spare(infer_epoch=1, k_max=3))
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["curator"])
    ours, theirs = resumed.chain.members[0].partition, straight.chain.members[0].partition
    assert ours.classes == theirs.classes
    assert ours.about == theirs.about == {**theirs.about, "output": "softmax", "infer_epoch": 1, "k_max": 3}
    assert all(torch.equal(getattr(ours, v), getattr(theirs, v)) for v in ("ids", "labels", "clusters", "p"))
    resumed.start(again, torch.optim.SGD(again.parameters(), 0.1))
    assert torch.equal(resumed.plan.sample_weight, straight.plan.sample_weight)
    assert torch.equal(resumed.epoch_draws(), first.epoch_draws())


# --------------------------------------------------------------------------------------------- choosing the epoch


def spectrum(strength: float) -> torch.nn.Module:
    """A model whose outputs follow the shortcut of the toy set by so much."""
    model = torch.nn.Linear(6, 2)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    with torch.no_grad():
        model.weight[1, 1] = strength
        model.weight[1, 2] = 1 - strength
    return model


def test_the_epoch_is_the_one_that_separates_the_validation_groups_best(monkeypatch):
    """The model follows noise after epochs 1 and 3 and the shortcut after epoch 2; training clusters are of epoch 2."""
    examples, validation = toy_examples(60, 0), toy_examples(60, 1)
    policy = Spare(tune_until=3, k=2, output="logits", tau=-1)
    curator = Curator(examples, policy, batch_size=10, validation=validation)
    model = spectrum(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stages = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HoldfastWarning)
        for epoch in curator.epochs(2, model, optimizer):
            stages.append(curator.stage)
            model.load_state_dict(spectrum(1.0 if epoch == 1 else 0.0).state_dict())
    assert stages == [0, 0, 0, 1, 1]
    assert policy.partition.about["infer_epoch"] == 2
    judged = judge_groups(policy.partition.clusters, examples.labels, examples.attributes)
    assert judged.separation > 0.8


def test_tuning_needs_validation_attributes_and_a_restart():
    curator, model, optimizer = toy_training(Spare(tune_until=1, k=1))
    curator.start(model, optimizer)
    with pytest.raises(DataError, match="tunes its epoch on a validation set with attributes"):
        curator.end_epoch(model, optimizer)
    with pytest.raises(ConfigError, match="turn restart on"):
        Spare(tune_until=2, restart=False)


def test_clusters_of_the_whole_set_are_cut_along_the_classes():
    outputs = torch.tensor([[0.0], [0.1], [0.0], [5.0], [5.1], [0.05]])
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    partition = separate(outputs, labels, k=2, across_classes=True)
    assert partition.clusters.tolist()[:4] == [0, 0, 0, 1]
    assert sorted(partition.clusters.tolist()[4:]) == [0, 1]
    assert partition.classes[0].silhouette == partition.classes[1].silhouette
    alone = separate(outputs[:3], labels[:3], k=1, across_classes=True)
    assert alone.classes[0].k == 1


@pytest.mark.parametrize(
    "options",
    [
        {"infer_epoch": -1},
        {"tune_until": -1},
        {"k_max": 1},
        {"k": 0},
        {"lambda_high": -1.0},
        {"tau": 1.5},
        {"output": "softmix"},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name if name != "output" else "did you mean 'softmax'"):
        Spare(**options)


def test_coloured_digits_are_separated_without_error_after_one_epoch(tmp_path):
    """Spec 9.4 S1: silhouettes .977 to .983, two clusters, lambda 1, precision = recall = 1; SPARE beats ERM."""
    splits = ColouredDigits(seed=0).load(tmp_path)
    settings = Training(epochs=4, weight_decay=1e-3, threads=1)
    policy = Spare(infer_epoch=1)
    model = build("mlp", splits.train.input_shape, 2, seed=0)
    spared = fit(model, splits, policy, settings)
    judged = judge_groups(policy.partition.clusters, splits.train.labels, splits.train.attributes)
    assert (judged.min_precision, judged.min_recall, judged.separation) == (1, 1, 1)
    for separation in policy.partition.classes.values():
        assert (separation.k, separation.lambda_) == (2, 1)
        assert separation.silhouette.method == "sorted"
        assert separation.silhouette.value > 0.96
    plain = fit(build("mlp", splits.train.input_shape, 2, seed=0), splits, None, settings)
    assert spared.test_last.worst_accuracy > plain.test_last.worst_accuracy + 0.3


def test_saved_clusters_replace_the_first_stage_whatever_the_order_of_the_examples(tmp_path):
    examples = toy_examples(60)
    partition = separate(5 * examples.attributes[:, None].float(), examples.labels, k=2, ids=examples.ids)
    partition.save(tmp_path / "clusters")
    shuffled = examples.subset(torch.randperm(60, generator=torch.Generator().manual_seed(0)))
    policy = Spare(saved=tmp_path / "clusters")
    assert policy.warmup_epochs == 0
    curator = Curator(shuffled, policy, batch_size=10)
    curator.start(toy_model())
    by_id = dict(zip(partition.ids.tolist(), partition.p.tolist(), strict=True))
    assert curator.plan.sample_weight.tolist() == [by_id[i] for i in shuffled.ids.tolist()]
    with pytest.raises(DataError, match="of 60 examples and these are 59"):
        Curator(shuffled.subset(torch.arange(59)), policy, batch_size=10).start(toy_model())


def test_exemplars_separate_what_kmeans_separates():
    outputs, labels, _ = outputs_of([(40, 10), (30, 15, 5)])
    ours, theirs = (separate(outputs, labels, clustering=c) for c in ("exemplars", "kmeans"))
    assert torch.equal(ours.clusters, theirs.clusters)
    assert torch.equal(ours.p, theirs.p)
