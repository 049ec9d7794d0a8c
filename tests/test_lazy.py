"""Names that are imported when they are used."""

import subprocess
import sys
import textwrap
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
from holdfast.data.catalog import DATASETS
from holdfast.data.clients.federations import FEDERATIONS
from holdfast.errors import ConfigError
from holdfast.federated import AGGREGATORS, ATTACKS, OBJECTIVES, PERSONALIZATION, SERVER_OPTIMIZERS
from holdfast.lazy import LazyTable
from holdfast.methods import CLIP_METHODS, GROUP_SOURCES, METHODS
from holdfast.multimodal.tasks.catalog import CLIP_DATA
from holdfast.spurious import GroupInference

ROOT = Path(holdfast.__file__).parent
#: Packages whose names are imported when they are used.
LAZY = sorted(
    ".".join(("holdfast", *file.parent.relative_to(ROOT).parts))
    for file in ROOT.rglob("__init__.py")
    if "lazy_names(__name__)" in file.read_text()
)
#: Tables whose keys are the names of the classes themselves.
BY_NAME = (AGGREGATORS, ATTACKS, OBJECTIVES, PERSONALIZATION, SERVER_OPTIMIZERS, DATASETS, FEDERATIONS, CLIP_DATA)


def in_a_new_process(code: str) -> str:
    """What the code prints in a process that has imported nothing."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("table", BY_NAME, ids=lambda table: table.what)
def test_every_name_of_a_table_is_that_of_its_class(table):
    assert {name: cls.name for name, cls in table.items()} == {name: name for name in table}


def test_every_method_can_be_made_and_those_with_groups_are_the_ones_that_infer_them():
    assert all(callable(method) for method in [*METHODS.values(), *CLIP_METHODS.values()])
    assert {name for name, method in METHODS.items() if issubclass(method, GroupInference)} == set(GROUP_SOURCES)


def test_a_table_lists_names_without_importing_and_imports_the_one_that_is_used():
    said = in_a_new_process(
        """
        import sys
        from holdfast.methods import METHODS
        print(len(METHODS), "spare" in METHODS, "torch" in sys.modules)
        METHODS["erm"]
        print("holdfast.training.policy" in sys.modules, "holdfast.spurious.group_inference.spare" in sys.modules)
        """
    )
    assert said.split() == [str(len(METHODS)), "True", "False", "True", "False"]


def test_an_unknown_name_is_answered_with_the_nearest():
    table = LazyTable("fraction", {"exact": "fractions:Fraction"})
    with pytest.raises(ConfigError, match=r"there is no fraction 'exakt'; did you mean 'exact'\?"):
        table.find("exakt")
    with pytest.raises(KeyError):
        table["exakt"]
    table["rounded"] = float
    assert table.find("rounded") is float and table["exact"].__name__ == "Fraction" and len(table) == 2


def test_every_data_set_of_the_package_is_in_its_catalog():
    from holdfast import data
    from holdfast.data.catalog import DataSet
    from holdfast.data.clients.federations import FederatedData

    for file in (ROOT / "data").rglob("*.py"):
        import_module(".".join(("holdfast", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"))
    for base, table in ((DataSet, data.DATASETS), (FederatedData, data.FEDERATIONS)):
        named = {
            cls.name for cls in _below(base) if cls.__module__.startswith("holdfast.data.") and "name" in vars(cls)
        }
        # A user's own data is named by its place, and what only the nodes of a deployment have by nobody.
        assert named - {"own", "nodes"} == set(table)


def _below(cls: type) -> set[type]:
    return {each for child in cls.__subclasses__() for each in (child, *_below(child))}


@pytest.mark.parametrize("package", LAZY)
def test_a_package_gives_all_the_names_that_it_lists_and_no_other(package):
    module = import_module(package)
    for name in module.__all__:
        # What the package says it is: once a submodule of that name is imported, the attribute is the submodule.
        value = module.__getattr__(name) if name in module.__dir__() else getattr(module, name)
        hidden = find_spec(f"{package}.{name}") is not None and not isinstance(value, ModuleType)
        assert not hidden, f"{name} of {package} is a submodule too, which hides it once that is imported"
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'spair'"):
        module.spair  # noqa: B018
