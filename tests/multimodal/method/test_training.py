from dataclasses import replace

import pytest
import torch

from holdfast.errors import ConfigError, DataError
from holdfast.multimodal import FineTunedClip, PromptClassifier, SpuriousAware, fine_tune
from holdfast.multimodal.method.cache import CachedTwoTowerModel, cache_features
from holdfast.training import Run, Training
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, tiny_task

EVERY_TERM = SpuriousAware(lambda_vs=1.0)
#: 50 images in batches of 10: five steps per epoch.
SETTINGS = Training(epochs=4, batch_size=10, learning_rate=0.05, weight_decay=1e-4, threads=1)


def tuned(tower=None, method=EVERY_TERM, settings=SETTINGS, **options):
    tower = small_tower() if tower is None else tower
    return tower, fine_tune(tower, tiny_task(tower).splits, TWO_TEMPLATES, method, settings, **options)


def apart(one, other):
    return max(float((a.float() - b.float()).abs().max()) for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize("kind", ["conv", "vit"])
@pytest.mark.parametrize("trained", ["projection", "release"])
def test_cached_and_uncached_training_agree_after_twenty_steps(kind, trained):
    twenty = replace(SETTINGS, epochs=1, epoch_size=200)
    whole, uncached = tuned(small_tower(kind), trained=trained, settings=twenty, cache=False)
    quick, cached = tuned(small_tower(kind), trained=trained, settings=twenty)
    assert apart(whole.state_dict(), small_tower(kind).state_dict()) > 1e-2
    assert apart(whole.state_dict(), quick.state_dict()) < 1e-5
    assert cached.history[0]["loss"] == pytest.approx(uncached.history[0]["loss"], abs=1e-5)
    assert cached.test == uncached.test


@pytest.mark.parametrize("trained", ["projection_strict", "projection", "release", "full"])
@pytest.mark.parametrize("cache", [True, False])
def test_what_is_frozen_stays_to_the_bit_batch_norm_included(trained, cache):
    """The release lets the batch norm of a frozen ResNet run in training mode."""
    tower = small_tower()
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    moving = {id(parameter) for parameter in tower.trained_parameters(trained)}
    wanted = {name for name, parameter in tower.named_parameters() if id(parameter) in moving}
    tuned(tower, trained=trained, cache=cache, settings=replace(SETTINGS, epochs=1))
    changed = {name for name, value in tower.state_dict().items() if not torch.equal(value, before[name])}
    assert changed <= wanted
    assert {"from_image.weight", "from_text.weight", "log_scale"} <= changed
    assert any(name.startswith("image_tower.maps") for name in changed) == (trained == "full")
    assert ("text_tower.words.weight" in changed) == (trained in ("release", "full"))
    assert not any(module.training for module in tower.modules())


def test_gradients_are_asked_of_the_same_parameters_as_before():
    tower = small_tower()
    tower.from_text.requires_grad_(False)
    tuned(tower, settings=replace(SETTINGS, epochs=1))
    assert [name for name, parameter in tower.named_parameters() if not parameter.requires_grad] == ["from_text.weight"]


@pytest.mark.parametrize("form", ["cs", "release"])
def test_training_moves_the_loss_down(form):
    _, result = tuned(method=SpuriousAware(form=form, lambda_vs=1.0), settings=replace(SETTINGS, epochs=8))
    assert result.history[-1]["loss"] < result.history[0]["loss"] - 0.02


def test_the_tower_holds_the_best_epoch_and_reports_agree_with_it():
    tower, result = tuned()
    classifier = PromptClassifier.of(tower, TWO_TEMPLATES).eval()
    test = tiny_task(tower).splits.test
    images, labels = test.gather(torch.arange(len(test)))
    with torch.no_grad():
        predicted = classifier(images).argmax(1)
    assert float((predicted == labels).float().mean()) == pytest.approx(result.test.accuracy)
    assert result.test.train_mix is not None


def test_a_run_that_was_killed_continues_to_the_bit(tmp_path):
    class KilledError(Exception):
        pass

    def kill(event):
        if event.kind == "epoch" and event.epoch == 2:
            raise KilledError

    expected, _ = tuned()
    run = Run.create(tmp_path / "run", {})
    with pytest.raises(KilledError):
        tuned(run=run, listeners=[kill])
    assert run.has_checkpoint()
    again, result = tuned(run=run)
    assert len(result.history) == SETTINGS.epochs
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in again.state_dict().items())
    saved = run.weights()
    assert sorted(saved) == ["tower.from_image.weight", "tower.from_text.weight", "tower.log_scale"]


def test_two_seeds_draw_differently_and_one_seed_alike():
    one, same, other = tuned()[0], tuned()[0], tuned(settings=replace(SETTINGS, seed=1))[0]
    assert apart(one.state_dict(), same.state_dict()) == 0
    assert apart(one.state_dict(), other.state_dict()) > 0


def test_progress_is_told():
    kinds = []
    tuned(listeners=[lambda event: kinds.append(event.kind)])
    assert kinds.count("epoch") == SETTINGS.epochs
    assert (kinds[0], kinds[-1]) == ("start", "end")


@pytest.mark.parametrize(("method", "shares"), [(FineTunedClip(), [0.25] * 4), (FineTunedClip("natural"), None)])
def test_balanced_draws_visit_every_group_alike(method, shares):
    events = []
    tuned(method=method, settings=replace(SETTINGS, epochs=1), listeners=[events.append])
    plans = [event.values for event in events if event.kind == "plan"]
    expected = [24 / 50, 6 / 50, 4 / 50, 16 / 50] if shares is None else shares
    assert plans[-1]["group_shares"] == pytest.approx(expected)


def test_the_scale_can_start_anew_and_is_trained():
    tower = small_tower()
    tuned(tower, scale=20.0, settings=replace(SETTINGS, epochs=1, learning_rate=1e-6))
    assert float(tower.scale().detach()) == pytest.approx(20, abs=0.01)
    with pytest.raises(ConfigError, match=r"the scale is 200; give a number above 0, at most 100"):
        tuned(scale=200)


def test_only_what_is_frozen_is_cached():
    tower = small_tower()
    classifier, splits = PromptClassifier.of(tower, TWO_TEMPLATES), tiny_task(tower).splits
    assert cache_features(classifier, splits, "full") == (classifier, splits)
    cached, features = cache_features(classifier, splits, "projection")
    assert features.train.input_shape == (480,)
    assert cached.inputs("pairs").shape == (2, 2, 2, 64)
    assert sum(parameter.numel() for parameter in cached.parameters()) == 480 * 16 + 64 * 16 + 1
    with pytest.raises(ConfigError, match="can't read new ones"):
        cached.tower.tokenize(["disc"])
    release, _ = cache_features(classifier, splits, "release")
    assert isinstance(release.tower, CachedTwoTowerModel)
    assert torch.equal(release.inputs("classes"), classifier.inputs("classes"))
    with torch.no_grad():
        expected = classifier(splits.test.gather(torch.arange(8))[0])
        for one in (cached, release):
            assert torch.allclose(one(features.test.gather(torch.arange(8))[0]), expected, atol=1e-4)


def test_balanced_sampling_without_groups_says_what_to_give():
    tower = small_tower()
    splits = tiny_task(tower).splits
    bare = replace(splits, train=replace(splits.train, groups=None, attributes=None))
    settings = replace(SETTINGS, select_by="accuracy")
    with pytest.raises(DataError, match="spurious-aware needs a group per training example"):
        fine_tune(tower, bare, TWO_TEMPLATES, SpuriousAware(), settings)
    with pytest.raises(DataError, match="spurious image term needs an attribute per training image"):
        fine_tune(tower, bare, TWO_TEMPLATES, SpuriousAware(lambda_vs=1, sampling="natural"), settings)


def test_a_wording_of_other_classes_is_refused():
    tower = small_tower()
    wording = replace(TWO_TEMPLATES, class_names=("disc", "square", "ring"))
    with pytest.raises(ConfigError, match="names 3 classes and the data has 2"):
        fine_tune(tower, tiny_task(tower).splits, wording)
