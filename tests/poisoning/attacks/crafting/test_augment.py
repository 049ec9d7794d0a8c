import pytest
import torch
import torch.nn.functional as F

from holdfast.data.transforms import Compose, RandomCrop, RandomFlip
from holdfast.errors import ConfigError
from holdfast.poisoning.attacks import RandomShift
from holdfast.poisoning.attacks.crafting.augment import shift


@pytest.mark.parametrize("down,right", [(0, 0), (2, 0), (-1, 3), (3, -3)])
def test_a_whole_shift_is_a_window_of_the_mirrored_image(down, right):
    images = torch.rand(2, 3, 6, 7)
    wide = F.pad(images, (3, 3, 3, 3), mode="reflect")
    shifted = shift(images, torch.tensor([[down, right]] * 2, dtype=torch.float32))
    torch.testing.assert_close(shifted, wide[:, :, 3 + down : 9 + down, 3 + right : 10 + right], rtol=0, atol=1e-5)


def test_half_a_pixel_is_the_mean_of_two():
    images = torch.rand(1, 1, 4, 5)
    shifted = shift(images, torch.tensor([[0.0, 0.5]]))
    torch.testing.assert_close(shifted[..., :-1], (images[..., :-1] + images[..., 1:]) / 2, rtol=0, atol=1e-5)


@pytest.mark.parametrize("augment", [RandomShift(1.7), RandomFlip(), RandomCrop(padding=2, margin="reflect")])
def test_gradients_flow_through_what_the_attack_looks_through(augment):
    images = torch.rand(2, 2, 5, 5, dtype=torch.float64, requires_grad=True)

    def seen(batch):
        return augment(batch, torch.Generator().manual_seed(3)).sin()

    assert torch.autograd.gradcheck(seen, (images,))


def test_draws_are_within_the_limit_per_image_and_repeatable():
    ramp = torch.arange(9.0).expand(50, 1, 9, 9).clone()
    augment = Compose((RandomShift(2), RandomFlip(0)))
    augmented = augment(ramp, torch.Generator().manual_seed(0))
    moves = (augmented - ramp)[:, 0, 0, 4]
    assert moves.abs().max() <= 2 and moves.std() > 0.8
    assert torch.equal(augmented, augment(ramp, torch.Generator().manual_seed(0)))
    assert torch.equal(RandomShift(0)(ramp, torch.Generator()).round(decimals=4), ramp)
    with pytest.raises(ConfigError, match="0 or more pixels"):
        RandomShift(-1)
