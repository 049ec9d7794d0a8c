import hashlib
import subprocess
from pathlib import Path

import pytest

from holdfast.data.checksums import file_sum, record_of, remember, remembered
from holdfast.errors import DataError


def test_sums_are_those_of_the_standard_programs(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"hello\n")
    assert file_sum(tmp_path / "a", "md5") == hashlib.md5(b"hello\n").hexdigest()
    assert file_sum(tmp_path / "a", "sha256") == hashlib.sha256(b"hello\n").hexdigest()
    assert file_sum(tmp_path / "a", "git") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_what_is_remembered_is_recalled_and_sha256sum_agrees(tmp_path: Path) -> None:
    (tmp_path / "set/deep").mkdir(parents=True)
    for name in ("set/a", "set/deep/b c", "set/Icon\r"):
        (tmp_path / name).write_text(name)
    remember(tmp_path / "set")
    sums = remembered(tmp_path / "set")
    assert sums == {
        tmp_path / name: hashlib.sha256(name.encode()).hexdigest() for name in ("set/a", "set/deep/b c", "set/Icon\r")
    }
    (tmp_path / "set/Icon\r").unlink()
    remember(tmp_path / "set")
    subprocess.run(["sha256sum", "--check", "--strict", "set.sha256"], cwd=tmp_path, check=True, capture_output=True)
    remember(tmp_path / "set/a")
    assert remembered(tmp_path / "set/a") == {tmp_path / "set/a": hashlib.sha256(b"set/a").hexdigest()}
    assert remembered(tmp_path / "nothing") is None


ZEROS = "0" * 64


@pytest.mark.parametrize("record", ["nonsense\n", "zz  a\n", "00  a\n", f"{ZEROS}  b\n", f"{ZEROS}  /etc/passwd\n"])
def test_a_record_that_is_none_is_refused(tmp_path: Path, record: str) -> None:
    (tmp_path / "a").write_text("a")
    record_of(tmp_path / "a").write_text(record)
    with pytest.raises(DataError, match=r"a\.sha256 .*remove it"):
        remembered(tmp_path / "a")
