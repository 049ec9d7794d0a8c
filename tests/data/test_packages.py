import io
import tarfile
from pathlib import Path

import pytest

import holdfast
from holdfast.data import packages
from holdfast.data.packages import packaged_folder, packaged_table
from holdfast.errors import DataError, MissingDependencyError


def test_the_folder_of_a_package_is_found_without_importing_it():
    assert packaged_folder("holdfast", "install it") == Path(holdfast.__file__).parent


@pytest.mark.parametrize("module", ["no_such_package", "this"])
def test_what_is_no_package_is_named_with_the_remedy(module: str):
    with pytest.raises(MissingDependencyError, match="pip install it"):
        packaged_folder(module, "pip install it")


def test_a_table_is_read_from_an_archive_of_a_package(monkeypatch, tmp_path):
    with tarfile.open(tmp_path / "tables.tar.gz", "w:gz") as archive:
        content = b"a,b\n1,x\n2,y\n"
        member = tarfile.TarInfo("csv/one.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        archive.addfile(tarfile.TarInfo("csv/empty.csv"))
    monkeypatch.setattr(packages, "packaged_folder", lambda module, missing: tmp_path)
    table = packaged_table("some", "tables.tar.gz", "csv/one.csv")
    assert {name: values.tolist() for name, values in table.items()} == {"a": [1, 2], "b": ["x", "y"]}
    for archive_name, csv in (
        ("no.gz", "csv/one.csv"),
        ("tables.tar.gz", "csv/two.csv"),
        ("tables.tar.gz", "csv/empty.csv"),
    ):
        with pytest.raises(DataError, match=rf"{csv} can't be read from .*; install some again"):
            packaged_table("some", archive_name, csv)
    (tmp_path / "tables.tar.gz").write_bytes((tmp_path / "tables.tar.gz").read_bytes()[:40])
    with pytest.raises(DataError, match="can't be read"):
        packaged_table("some", "tables.tar.gz", "csv/one.csv")
