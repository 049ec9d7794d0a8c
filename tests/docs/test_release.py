"""What is released: the wheel and the source distribution have every file they need, and the project says who it is."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import holdfast
from tests.docs.pages import ROOT

pytest.importorskip("hatchling")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The names of the files in a wheel and in a source distribution made of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    for target in ("wheel", "sdist"):
        command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    return in_wheel, in_sdist


def package_files() -> set[str]:
    """Every file of the package that git keeps: code, and the data beside it."""
    kept = subprocess.run(["git", "ls-files", "holdfast"], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(kept.stdout.split())


def test_wheel_and_source_distribution_have_every_file_of_the_package(built):
    in_wheel, in_sdist = built
    files = package_files()
    assert {file.rpartition(".")[2] for file in files} > {"py", "css", "js", "json"}
    assert files - in_wheel == set()
    assert files - in_sdist == set()


def test_the_wheel_has_nothing_but_the_package_its_metadata_and_the_licence(built):
    in_wheel, _ = built
    others = {name for name in in_wheel if not name.startswith("holdfast/")}
    assert all(re.match(rf"holdfast-{re.escape(holdfast.__version__)}\.dist-info/", name) for name in others)
    assert any(name.endswith("licenses/LICENSE") for name in others)


def test_the_citation_file_has_what_its_format_needs():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(citation)
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == holdfast.__version__ and citation["license"] == "Apache-2.0"
    assert all("name" in author or {"family-names", "given-names"} <= set(author) for author in citation["authors"])
    if "date-released" in citation:
        assert isinstance(citation["date-released"], datetime.date)


def test_the_version_is_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{holdfast.__version__}"' in project
    assert f"## [{holdfast.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


_COMPILE = """
import pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
print("%d.%d" % sys.version_info[:2])
"""


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_oldest_and_the_newest_python_here_compile_every_module(version):
    """Only syntax: there is no build of torch for them where this is developed."""
    managed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    interpreter = managed[0] if managed else shutil.which(f"python{version}")
    if interpreter is None:
        pytest.skip(f"no Python {version} here")
    command = [str(interpreter), "-c", _COMPILE, str(ROOT / "holdfast")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == version
