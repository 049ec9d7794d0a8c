"""Presets are checked against the classes they set, so that none can name a field that is not there."""

from dataclasses import fields

import pytest

from holdfast.cli.common.options import parse
from holdfast.data import DATASETS
from holdfast.errors import ConfigError
from holdfast.methods import METHODS
from holdfast.presets import PRESETS, preset_for
from holdfast.training import Training


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_builds_what_it_names(name):
    preset = PRESETS[name]
    data = DATASETS[preset.data]
    METHODS[preset.method](**preset.options)
    data(**preset.data_options)
    recipe = {key: value for key, value in data.recipe.items() if key in {f.name for f in fields(Training)}}
    Training(**{**recipe, **preset.training})


def test_the_command_line_starts_from_the_preset_and_options_override_it():
    options = parse(["--data", "waterbirds", "--method", "pde", "--pde.added", "5", "--epochs", "200"])
    pde = options.methods[0]
    assert (pde.first_expansion, pde.every, pde.added) == (140, 10, 5)
    assert (options.training.learning_rate, options.training.batch_size, options.training.epochs) == (1e-2, 64, 200)
    assert options.data.name == "waterbirds"


def test_a_preset_is_chosen_by_name_and_only_for_what_it_is_for():
    plain = parse(["--data", "celeba", "--method", "pde", "--preset", "celeba-plain"])
    released = parse(["--data", "celeba", "--method", "pde"])
    assert (plain.methods[0].middle_stage, released.methods[0].middle_stage) == (False, True)
    assert parse(["--data", "civilcomments", "--method", "pde"]).data.partition == "joint"
    with pytest.raises(ConfigError, match="there is no preset 'celeba-plian'; did you mean 'celeba-plain'"):
        preset_for("celeba", "pde", "celeba-plian")
    with pytest.raises(ConfigError, match="is for --data celeba --method pde"):
        preset_for("celeba", "spare", "celeba-plain")


def test_groups_come_from_another_method_in_one_line():
    options = parse(["--method", "pde", "--groups", "spare", "--spare.k", "2"])
    assert [member.name for member in options.policy.members] == ["groups", "pde"]
    assert (options.source.k, options.source.infer_epoch) == (2, 1)
    assert options.config()["spare"]["k"] == 2
    with pytest.raises(ConfigError, match="no method called 'pde' infers groups"):
        parse(["--method", "group-dro", "--groups", "pde"])
