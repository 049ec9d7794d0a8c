"""What `import holdfast` gives, and what it costs."""

import numpy as np
import pytest

import holdfast
from holdfast.errors import ConfigError, DataError
from tests.test_lazy import in_a_new_process

HEAVY = ("torch", "numpy", "sklearn", "pyarrow", "rich", "yaml")


def test_importing_holdfast_imports_nothing_heavy_until_a_name_is_used():
    said = in_a_new_process(
        f"""
        import sys
        import holdfast
        dir(holdfast), holdfast.__all__, holdfast.__version__
        print([name for name in {HEAVY} if name in sys.modules])
        print(holdfast.spurious.__name__, "torch" in sys.modules)
        print(holdfast.Training(epochs=3).epochs, "torch" in sys.modules)
        """
    )
    assert said.splitlines() == ["[]", "holdfast.spurious False", "3 True"]


def test_one_class_of_a_package_does_not_import_the_others():
    said = in_a_new_process(
        """
        import sys
        from holdfast.federated import Ditto
        from holdfast.poisoning import Epic
        print("holdfast.federated.attacks.omniscient" in sys.modules, "holdfast.poisoning.attacks" in sys.modules)
        """
    )
    assert said.split() == ["False", "False"]


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_documented(name):
    assert getattr(holdfast, name).__doc__


def test_methods_are_found_by_their_subject():
    names = ("spurious.Spare", "coresets.Crest", "poisoning.Epic", "federated.Ditto", "multimodal.SpuriousAware")
    for path in names:
        package, name = path.split(".")
        assert getattr(getattr(holdfast, package), name).__name__ == name


class TestSelect:
    @pytest.fixture
    def points(self):
        draws = np.random.default_rng(0)
        return np.concatenate([draws.normal(centre, 0.05, (30, 4)) for centre in (0.0, 5.0, 9.0)])

    @pytest.mark.parametrize("method", ["facility-location", "s2l", "random"])
    def test_as_many_as_asked_for_are_chosen_once_each_and_never_one_without_a_vector(self, points, method):
        points[7] = np.nan
        chosen = holdfast.select(points, "10%", method, clusters=3, seed=1)
        assert len(chosen) == 9 == len(set(chosen.tolist())) and 7 not in chosen
        assert chosen.tolist() == sorted(chosen.tolist())
        again = holdfast.select(points, 9, method, clusters=3, seed=1)
        assert chosen.tolist() == again.tolist()

    def test_s2l_takes_more_of_what_is_rare_than_its_share(self, points):
        rare = np.concatenate([points[:30], points[:30] + 0.01, points[60:66]])  # 60 alike, and 6 others
        chosen = holdfast.select(rare, 22, "s2l", clusters=6, seed=1)
        assert (chosen >= 60).sum() > 22 * 6 / 66

    @pytest.mark.parametrize("method", ["facility-location", "s2l", "random"])
    def test_sources_share_the_budget_equally(self, points, method):
        sources = np.repeat([0, 1], [80, 10])
        chosen = holdfast.select(points, 20, method, sources=sources, clusters=3)
        assert np.bincount(sources[chosen]).tolist() == [10, 10]

    def test_what_can_not_be_done_is_said(self, points):
        with pytest.raises(ConfigError, match="did you mean 'facility-location'"):
            holdfast.select(points, 3, "facility_locations")
        with pytest.raises(DataError, match=r"give \(n, d\) and \(n,\)"):
            holdfast.select(points, 3, sources=[0, 1])
        points[:80] = np.inf
        with pytest.raises(ConfigError, match="the budget is 11 and 10 examples have finite vectors"):
            holdfast.select(points, 11)
