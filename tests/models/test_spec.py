import json
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from holdfast.errors import CheckpointError, ConfigError
from holdfast.models import ModelSpec, build
from tests.models.own import own  # noqa: F401
from tests.models.test_registry import same

SHAPE = (3, 4, 4)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.text(max_size=12),
    st.lists(st.integers(1, 512), max_size=4).map(tuple),
    st.integers(1, 1000),
    st.dictionaries(st.text(max_size=6), plain, max_size=3),
    st.none() | st.text(max_size=5),
)
def test_a_spec_comes_back_from_json(name, shape, classes, args, text):
    spec = ModelSpec(name, shape, classes, args, classes + 1, text, text)
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"name": "mlp"},
        {"name": "mlp", "input_shape": 3, "n_classes": 2},
        {"name": "mlp", "input_shape": None, "n_classes": 2},
        {"name": "mlp", "input_shape": [3], "n_classes": "two"},
        {"name": "mlp", "input_shape": [3], "n_classes": 2, "x": 1},
        {"name": "mlp", "input_shape": [3], "n_classes": 2, "args": [1]},
    ],
)
def test_a_description_that_is_none_is_refused(stored):
    with pytest.raises(CheckpointError, match="description of a model"):
        ModelSpec.from_json(stored)


def test_build_and_a_spec_are_one_path():
    assert same(build("mlp", SHAPE, 2, seed=3), ModelSpec("mlp", SHAPE, 2, seed=3).build())
    wide = ModelSpec("mlp", SHAPE, 2, {"hidden": [5]}, seed=3).build()
    assert same(wide, build("mlp", SHAPE, 2, args={"hidden": [5]}, seed=3))
    assert wide.head.in_features == 5


def test_a_network_of_the_table_refuses_arguments_that_it_lacks():
    with pytest.raises(ConfigError, match="mlp has no argument 'hiddn'; did you mean 'hidden'"):
        ModelSpec("mlp", SHAPE, 2, {"hiddn": 3}).build()
    with pytest.raises(ConfigError, match="resnet18 has no argument 'width'; it takes no arguments"):
        ModelSpec("resnet18", SHAPE, 2, {"width": 3}).build()
    with pytest.raises(ConfigError, match="mlp can't be made with hidden='wide': TypeError"):
        ModelSpec("mlp", SHAPE, 2, {"hidden": "wide"}).build()


@pytest.mark.parametrize("name", ["Net", "Logits", "Configured", "Lazy", "made", "small"])
def test_a_model_of_ones_own_starts_by_the_seed_and_leaves_the_global_generator(own, name):  # noqa: F811
    torch.manual_seed(3)
    spec = ModelSpec(f"{own}.net:{name}", SHAPE, 2, seed=5)
    first, again, other = spec.build(), spec.build(), ModelSpec(spec.name, SHAPE, 2, seed=6).build()
    assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert same(first, again) and not same(first, other)
    assert first.training
    assert sys.path[0] != str(Path.cwd())


def test_what_the_data_say_is_filled_in_and_what_is_given_wins(own):  # noqa: F811
    spec = ModelSpec(f"{own}.net:made", SHAPE, 2, {"depth": 2})
    assert spec.filled == {"num_classes": 2, "in_features": 48}
    assert len(spec.build()) == 4
    assert ModelSpec(f"{own}.net:Net", SHAPE, 2, {"n_classes": 7}).filled == {"input_shape": SHAPE}
    nested = ModelSpec(f"{own}.net:Configured", SHAPE, 2, {"config": {"width": 6}})
    assert nested.filled == {"config.n_classes": 2, "config.in_channels": 3}
    assert nested.build().out.in_features == 6


def test_a_model_that_is_ready_is_copied_and_takes_no_arguments(own):  # noqa: F811
    spec = ModelSpec(f"{own}.net:ready", SHAPE, 2)
    first, second = spec.build(), spec.build()
    assert first is not second and same(first, second)
    with torch.no_grad():
        first[1].weight.add_(1)
    assert not same(first, spec.build())
    with pytest.raises(ConfigError, match="is a model already and takes no arguments"):
        ModelSpec(spec.name, SHAPE, 2, {"hidden": 3}).build()


def test_weights_of_a_file_fill_a_model_of_ones_own_but_not_a_skeleton(own, tmp_path):  # noqa: F811
    spec = ModelSpec(f"{own}.net:Net", SHAPE, 2, seed=1)
    save_file(spec.build().state_dict(), tmp_path / "w.safetensors")
    filled = ModelSpec(spec.name, SHAPE, 2, seed=2, weights=str(tmp_path / "w.safetensors"))
    assert same(spec.build(), filled.build())
    (tmp_path / "w.safetensors").unlink()
    assert same(filled.skeleton(), ModelSpec(spec.name, SHAPE, 2, seed=2).build())
    with pytest.raises(ConfigError, match="no file of weights"):
        filled.build()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("Raises", {}, r"can't be made with no arguments: RuntimeError: no more memory \(.*net.py, line \d+\)"),
        ("exact", {}, "must be told 'blocks'; add it with --model-args blocks=VALUE"),
        ("exact", {"blocks": "many"}, r"net:exact can't be made with blocks='many': TypeError: .* line \d+\)"),
        ("Net", {"hiden": 3}, "has no argument 'hiden'; did you mean 'hidden'"),
        ("Configured", {"config": {"wdth": 3}}, "Configured's config has no argument 'wdth'; did you mean 'width'"),
        ("nothing_made", {}, "returned dict, not a nn.Module"),
        ("three", {}, "is of type int, not a network"),
        ("NotANetwork", {}, "is a class but no nn.Module"),
        ("Nett", {}, r"the module own_package_\d+.net \(own_package_\d+/net.py\) has no 'Nett'; did you mean 'Net'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_ones_own_model_is_a_sentence(own, name, args, message):  # noqa: F811
    with pytest.raises(ConfigError, match=message):
        ModelSpec(f"{own}.net:{name}", SHAPE, 2, args).build()


def test_a_name_with_a_dot_in_the_place_of_the_colon_is_told_the_colon():
    with pytest.raises(ConfigError, match=r"there is no model 'a.net.Net'; .* with a colon: a.net:Net"):
        ModelSpec("a.net.Net", SHAPE, 2).build()
