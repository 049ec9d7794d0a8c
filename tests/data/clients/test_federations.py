import dataclasses
from pathlib import Path

import pytest

from holdfast.data import DATASETS, FEDERATIONS, FederatedData, federation, load_federation
from holdfast.data.clients.federations import register_federation
from holdfast.errors import ConfigError, DataError
from holdfast.models import MODELS

PUBLISHED = {
    "vehicle": ("svm", 0.1, 32, 600, 10, 1),
    "fashion-mnist": ("cnn-fashion", 0.05, 16, 5000, 10, 2),
    "surrogate": ("softmax", 0.1, 16, 600, 10, 2),
}


@pytest.mark.parametrize("name", sorted(FEDERATIONS))
def test_every_entry_says_what_it_is_and_how_it_is_trained(name) -> None:
    cls = FEDERATIONS[name]
    assert cls.name == name and cls.summary and not cls.summary.endswith(".")
    assert cls.recipe.model in MODELS
    assert (cls.recipe.local_steps == 0) != (cls.recipe.local_epochs == 0)
    assert list(cls.recipe.weak) == sorted(cls.recipe.weak) and len(cls.recipe.strong) == len(cls.recipe.fixed) == 3
    assert dataclasses.is_dataclass(cls) and cls() == cls()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_published_settings(name) -> None:
    recipe = FEDERATIONS[name].recipe
    got = recipe.model, recipe.learning_rate, recipe.batch_size, recipe.rounds, recipe.cohort, recipe.local_steps
    assert got == PUBLISHED[name]


def test_lambda_grids_are_those_of_the_appendix() -> None:
    for name in ("vehicle", "fashion-mnist", "celeba-leaf", "femnist", "femnist-skewed"):
        recipe = FEDERATIONS[name].recipe
        assert (recipe.weak, recipe.strong) == ((0.1, 1, 2), (0.05, 0.1, 0.2))
        assert recipe.fixed == ((0.01, 0.1, 1) if "femnist" in name else (0.1, 1, 2))
    recipe = FEDERATIONS["stackoverflow"].recipe
    assert (recipe.weak, recipe.strong, recipe.fixed) == ((0.05, 0.1, 0.3), (0.01, 0.05, 0.1), (0.05, 0.1, 0.3))
    assert (recipe.halve_every, recipe.local_epochs, recipe.cohort) == (200, 1, 50)


@pytest.mark.parametrize("name", [name for name, cls in sorted(FEDERATIONS.items()) if cls.files])
def test_missing_files_are_answered_with_how_to_get_them(tmp_path: Path, name) -> None:
    with pytest.raises(DataError, match=r"needs .* which isn't there; (put|run|get|agree) .* HOLDFAST_DATA"):
        load_federation(name, tmp_path)


def test_an_unknown_name_or_option_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no federated data set, file or folder 'femnst'; did you mean 'femnist'"):
        federation("femnst")
    with pytest.raises(ConfigError, match="'surrogate' has no option 'p'"):
        federation("surrogate", p=3)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ConfigError, match="two federated data sets named 'surrogate'"):
        register_federation(FEDERATIONS["surrogate"])
    assert issubclass(FEDERATIONS["surrogate"], FederatedData) and "surrogate" not in DATASETS
