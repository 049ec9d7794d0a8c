import sys

import pytest
import torch
import torch.nn.functional as F

from holdfast.errors import ConfigError, MissingDependencyError
from holdfast.multimodal import PromptClassifier, Wording, adjusted_iou, class_maps, load_clip
from holdfast.multimodal.backends import OpenClip
from holdfast.multimodal.method.cache import cache_features
from tests.multimodal.backends.hub import save_clip
from tests.multimodal.backends.open_clip_stand_in import clip, tokenize
from tests.multimodal.toy import TWO_TEMPLATES, small_tower, tiny_task

pytest.importorskip("captum")

TWO_CLASSES = Wording(("disc", "square"), templates=("a {}", "one {}"))


def images(size, n=5):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def min_max(maps):
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp_min(1e-30)


def by_hand(classifier, batch, target):
    """GradCAM by autograd alone: channels weighed by their mean gradient, summed, rectified, resized, scaled."""
    tower, kept = classifier.tower, []
    layer = tower.explained

    def keep(_, __, output):
        kept.append(output)

    hook = tower.get_submodule(layer.name).register_forward_hook(keep)
    logits = classifier(batch.clone().requires_grad_())
    hook.remove()
    seen = kept[-1]
    (gradient,) = torch.autograd.grad(logits[:, target].sum(), seen)
    if layer.grid is not None:
        if not layer.batch_first:
            seen, gradient = seen.transpose(0, 1), gradient.transpose(0, 1)
        seen, gradient = (part[:, 1:].transpose(1, 2).reshape(len(batch), -1, *layer.grid) for part in (seen, gradient))
    coarse = F.relu((gradient.mean((2, 3), keepdim=True) * seen).sum(1, keepdim=True))
    return min_max(F.interpolate(coarse, batch.shape[2:], mode="bilinear", align_corners=False)[:, 0].detach())


def towers(name, folder):
    if name in ("conv", "vit"):
        return small_tower(name), TWO_TEMPLATES
    if name == "transformers":
        pytest.importorskip("transformers")
        save_clip(folder)
        return load_clip(folder), TWO_CLASSES
    with torch.random.fork_rng():
        return OpenClip(clip(name), tokenize), TWO_CLASSES


@pytest.mark.parametrize("name", ["conv", "vit", "transformers", "RN50", "ViT", "ViT-old"])
def test_maps_of_every_tower_are_those_of_autograd(name, tmp_path):
    tower, wording = towers(name, tmp_path)
    classifier, batch = PromptClassifier.of(tower, wording), images(tower.preprocessing.size)
    maps = class_maps(classifier, batch)
    assert maps.shape == (5, 2, *batch.shape[2:])
    assert maps.amax() > 0
    for target in range(2):
        assert torch.allclose(maps[:, target], by_hand(classifier, batch, target), atol=1e-4)


def test_maps_of_a_convolutional_tower_are_those_of_captum():
    from captum.attr import LayerAttribution, LayerGradCam

    tower = small_tower()
    classifier, batch = PromptClassifier.of(tower, TWO_TEMPLATES), images(24)
    theirs = LayerGradCam(classifier, tower.image_tower.maps).attribute(batch, 1, relu_attributions=True)
    expected = min_max(LayerAttribution.interpolate(theirs, (24, 24), "bilinear")[:, 0].detach())
    assert torch.allclose(class_maps(classifier, batch, [1])[:, 0], expected, atol=1e-5)


def test_the_tower_is_left_as_it_was():
    for kind in ("conv", "vit"):
        tower = small_tower(kind).requires_grad_(False)
        classifier = PromptClassifier.of(tower, TWO_TEMPLATES)
        before = {name: value.clone() for name, value in tower.state_dict().items()}
        with torch.no_grad():
            expected = classifier(images(24))
            class_maps(classifier, images(24))
            assert torch.equal(classifier(images(24)), expected)
        assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
        assert not any(module._forward_hooks for module in classifier.modules())


def test_the_class_that_an_object_speaks_for_is_hot_on_it_and_the_other_beside_it():
    """A tower that passes brightness on in one channel, which speaks for class 0, and a constant in another."""
    tower = small_tower()
    classifier = PromptClassifier.of(tower, TWO_TEMPLATES)
    with torch.no_grad():
        for module in tower.image_tower.maps:
            if isinstance(module, torch.nn.Conv2d):
                module.weight.zero_()
                module.weight[0, 0, 1, 1] = 1
        tower.image_tower.maps[-2].bias[1] = 1
        one, other = F.normalize(classifier.prompts("classes").mean(1), dim=-1)
        aside = torch.linalg.svd(torch.stack([one, other])).Vh[2]
        tower.from_image.weight.zero_()
        tower.from_image.weight[:, 0], tower.from_image.weight[:, 1] = F.normalize(one - other, dim=0), aside
    bright = torch.zeros(1, 3, 24, 24)
    bright[:, 0, 4:12, 12:20] = 1
    region = bright[:, 0] > 0
    maps = class_maps(classifier, bright)
    inside = (maps * region[:, None]).sum((2, 3)) / maps.sum((2, 3))
    assert float(inside[0, 0]) == pytest.approx((7 / 8) ** 2)  # two cells of four pixels lose an eighth per direction
    assert float(inside[0, 1]) < 0.1
    assert float(adjusted_iou(maps, torch.tensor([0]), region)) > 0.8


def test_cached_features_cannot_be_explained():
    tower = small_tower()
    cached, _ = cache_features(PromptClassifier.of(tower, TWO_TEMPLATES), tiny_task(tower).splits, "projection")
    with pytest.raises(ConfigError, match="features of an image have no places"):
        class_maps(cached, images(24))


def test_without_captum_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(MissingDependencyError, match="captum"):
        class_maps(PromptClassifier.of(small_tower(), TWO_TEMPLATES), images(24))
