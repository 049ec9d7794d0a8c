from dataclasses import replace

import numpy as np
import pytest
import torch

from holdfast.data.sets.images.coloured import ColouredDigits
from holdfast.errors import ConfigError, DataError, HoldfastWarning
from holdfast.models import build
from holdfast.spurious import Spare, separate
from holdfast.spurious.group_inference.discovery import Cluster, audit_groups, describe_clusters, discover, rank
from holdfast.spurious.group_inference.quality import judge_groups
from holdfast.training import Training, fit
from tests.training.toy import toy_examples, toy_model, toy_splits


@pytest.fixture
def clustered():
    """Softmax outputs of 200 examples of 3 classes, each class in two clear clusters."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (200,), generator=generator)
    says = torch.where(torch.rand(200, generator=generator) < 0.2, (labels + 1) % 3, labels)
    logits = 6 * torch.eye(3)[says] + 0.5 * torch.randn(200, 3, generator=generator)
    probabilities = logits.softmax(1)
    return probabilities, separate(probabilities, labels, k_max=2, ids=torch.randperm(200, generator=generator) + 50)


def one(size=100, predicted=(0, 100, 0), label=0):
    return Cluster(label, 0, size, 1000, predicted, (0,) * 20, 0.5, 0.5, 1.0, (), ())


# ----------------------------------------------------------------------------------------------------- describing


def test_every_number_is_that_of_the_slow_obvious_loop(clustered):
    probabilities, partition = clustered
    descriptions = describe_clusters(probabilities, partition, shown=5)
    p, labels, clusters = probabilities.double().numpy(), partition.labels.numpy(), partition.clusters.numpy()
    assert [(one.label, one.cluster) for one in descriptions] == [(c, j) for c in range(3) for j in range(2)]
    for one in descriptions:
        members = [i for i in range(200) if labels[i] == one.label and clusters[i] == one.cluster]
        assert one.size == len(members)
        assert one.class_size == sum(labels == one.label)
        assert one.share == len(members) / sum(labels == one.label)
        predicted = [int(p[i].argmax()) for i in members]
        assert one.predicted == tuple(predicted.count(c) for c in range(3))
        assert one.accuracy == predicted.count(one.label) / len(members)
        assert one.misclassified == pytest.approx(1 - one.accuracy)
        confidence = [p[i, one.label] for i in members]
        assert one.confidence == pytest.approx(np.mean(confidence))
        assert one.histogram == tuple(np.histogram(confidence, 20, (0, 1))[0])
        drawn = partition.p.numpy()
        assert one.draw_share == pytest.approx(drawn[members].sum() / drawn[labels == one.label].sum())
        assert one.weight == pytest.approx(drawn[members[0]] * 200)
        centre = p[members].mean(0)
        distances = {i: np.linalg.norm(p[i] - centre) for i in members}
        assert one.typical == tuple(sorted(members, key=distances.get)[:5])
        assert len(one.others) == min(5, len(members) - 5)
        assert set(one.others) <= set(members) - set(one.typical)


def test_the_wrong_class_that_is_predicted_most_often_is_named():
    found = one(size=10, predicted=(3, 1, 6))
    assert (found.mistaken_for, found.mistaken, found.stands_out) == (2, 0.6, True)
    assert (one(size=4, predicted=(4, 0, 0)).mistaken_for, one(size=4, predicted=(4, 0, 0)).mistaken) == (None, 0.0)
    assert one(size=4, predicted=(0, 2, 2)).mistaken_for == 1
    assert not one(size=5, predicted=(1, 2, 2)).stands_out


def test_the_choice_of_examples_depends_on_the_seed_and_not_on_their_order(clustered):
    probabilities, partition = clustered
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    vectors = {name: getattr(partition, name)[order] for name in ("ids", "labels", "clusters", "p")}
    shuffled = describe_clusters(probabilities[order], replace(partition, **vectors))
    expected = describe_clusters(probabilities, partition)
    for before, after in zip(expected, shuffled, strict=True):
        for name in ("typical", "others"):
            ids = partition.ids[list(getattr(before, name))]
            assert torch.equal(vectors["ids"][list(getattr(after, name))], ids)
    others = [cluster.others for cluster in describe_clusters(probabilities, partition, seed=1)]
    assert others != [cluster.others for cluster in expected]


def test_typical_is_what_lies_near_the_centre_of_what_was_clustered(clustered):
    probabilities, partition = clustered
    positions = torch.arange(200.0)[:, None]
    for cluster in describe_clusters(probabilities, partition, outputs=positions, shown=1):
        mine = (partition.labels == cluster.label) & (partition.clusters == cluster.cluster)
        members = mine.nonzero().flatten().double()
        assert abs(cluster.typical[0] - members.mean()) == (members - members.mean()).abs().min()


def test_of_a_small_cluster_all_are_typical_and_none_is_left_to_draw():
    outputs = torch.tensor([[0.9, 0.1]] * 20 + [[0.1, 0.9]] * 3)
    partition = separate(outputs, torch.zeros(23, dtype=torch.int64))
    small = describe_clusters(outputs, partition)[1]
    assert (sorted(small.typical), small.others) == ([20, 21, 22], ())


def test_a_certain_prediction_is_in_the_last_bin():
    outputs = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 2)
    first, second = describe_clusters(outputs, separate(outputs, torch.zeros(6, dtype=torch.int64)))
    assert (first.histogram[-1], second.histogram[0]) == (4, 2)


def test_outputs_of_other_examples_are_refused(clustered):
    probabilities, partition = clustered
    with pytest.raises(DataError, match="the partition has 200 examples"):
        describe_clusters(probabilities[:-1], partition)
    with pytest.raises(DataError, match=r"outputs \(7, 3\)"):
        describe_clusters(probabilities, partition, outputs=torch.zeros(7, 3))


# -------------------------------------------------------------------------------------------------------- ranking


def test_the_rank_is_by_errors_then_by_a_single_target_then_by_size():
    mild, spread, single = one(predicted=(60, 40, 0)), one(predicted=(0, 50, 50)), one(predicted=(0, 100, 0))
    large, almost = one(size=900, predicted=(0, 900, 0)), one(size=250, predicted=(1, 249, 0))
    assert rank([mild, spread, single, almost, large]) == [large, almost, single, spread, mild]


# ------------------------------------------------------------------------------------------------------ discovery


def test_the_shortcut_of_the_coloured_digits_stands_out_after_one_epoch():
    train = ColouredDigits().load(None).train.subset(range(0, 9900, 3))
    model = build("mlp", train.input_shape, 2)
    (audit,) = discover(model, train, Training(learning_rate=0.03, weight_decay=1e-3), epochs=[1])
    assert [(one.label, one.mistaken_for) for one in audit.suspects] == [(0, 1), (1, 0)]
    assert all(one.mistaken > 0.95 for one in audit.suspects)
    judged = judge_groups(audit.partition.clusters, train.labels, train.attributes)
    assert judged.min_precision > 0.99
    assert judged.min_recall > 0.99
    assert [one.cluster for one in audit.of_class(1)] == [0, 1]
    assert audit.partition.about["infer_epoch"] == audit.epoch == 1


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
@pytest.mark.parametrize("output", ["softmax", "features"])
def test_the_clusters_are_those_that_spare_infers(output):
    """Dropout and batch norm included; the schedule spans the whole budget in both."""
    settings = Training(epochs=4, learning_rate=0.1, schedule="cosine", seed=3, clip_norm=0.5)
    spare = Spare(infer_epoch=2, output=output)
    fit(toy_model(), toy_splits(), spare, settings)
    (audit,) = discover(toy_model(), toy_examples(), settings, epochs=[2], output=output)
    assert torch.equal(audit.partition.clusters, spare.partition.clusters)
    assert torch.equal(audit.partition.p, spare.partition.p)
    assert audit.partition.about == spare.partition.about


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_every_epoch_asked_for_is_audited_with_the_model_of_that_moment():
    model = toy_model()
    seen = []
    for found in discover(model, toy_examples(), Training(learning_rate=0.1), epochs=[1, 3]):
        again = audit_groups(model, toy_examples())
        assert torch.equal(found.probabilities, again.probabilities)
        assert found.clusters == again.clusters
        seen.append(found)
    assert [found.epoch for found in seen] == [1, 3]
    assert not torch.equal(seen[0].probabilities, seen[1].probabilities)


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_the_global_generator_is_left_alone_between_audits_too():
    before = torch.get_rng_state()
    for _ in discover(toy_model(), toy_examples(), epochs=[1, 2]):
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings("ignore::holdfast.errors.HoldfastWarning")
def test_listeners_hear_of_the_start_and_of_every_step():
    events = []
    list(discover(toy_model(), toy_examples(), Training(batch_size=20), epochs=[2], listeners=[events.append]))
    assert [event.kind for event in events] == ["start"] + ["step"] * 6
    assert events[0].values["epochs"] == 2
    assert [(event.epoch, event.values["steps_left"]) for event in events[1:]] == [
        (0, 2), (0, 1), (0, 0), (1, 2), (1, 1), (1, 0),
    ]  # fmt: skip
    assert [event.step for event in events] == list(range(7))


@pytest.mark.parametrize("epochs", [[], [0, 2]])
def test_epochs_before_the_first_are_refused(epochs):
    with pytest.raises(ConfigError, match="give at least one, from 1"):
        next(discover(toy_model(), toy_examples(), epochs=epochs))


def test_doubtful_clusters_are_warned_about_as_in_spare():
    with pytest.warns(HoldfastWarning, match=r"under 0\.7"):
        audit_groups(toy_model(), toy_examples(), output="logits")
