import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from holdfast.cli.main import main
from holdfast.errors import ConfigError

QUICK = [
    "audit",
    "poison",
    "--data",
    "digits",
    "--epochs",
    "3",
    "--learning-rate",
    "0.05",
    "--fraction",
    "0.1",
    "--start",
    "1",
]


def test_suspects_are_left_behind(somewhere_else: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--parts", "0", "--out", "audit"]) == 0
    rows = list(csv.DictReader(Path("audit/suspects.csv").read_text().splitlines()))
    log = pq.read_table("audit/epic.parquet").to_pydict()
    assert sorted(int(row["id"]) for row in rows) == sorted(log["id"])
    assert {int(row["cluster_size"]) for row in rows} == {1}
    assert [int(row["epoch"]) for row in rows] == sorted(int(row["epoch"]) for row in rows)
    said = capsys.readouterr().out
    assert f"{len(rows)} of" in said
    assert "look before you delete" in said
    page = Path("audit/audit.html").read_text()
    assert "these are suspects, not proven poisons" in page
    assert page.count("<img") == min(len(rows), page.count("<img"))
    assert "isolated in epoch" in page


def test_a_second_opinion_says_who_accuses_and_accuses_others_too(
    somewhere_else: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*QUICK, "--parts", "3", "--out", "audit"]) == 0
    rows = list(csv.DictReader(Path("audit/suspects.csv").read_text().splitlines()))
    log = pq.read_table("audit/epic.parquet").to_pydict()
    isolated = [int(row["id"]) for row in rows if row["epoch"]]
    assert sorted(isolated) == sorted(log["id"]), "nobody that stood alone is left out"
    assert {row["flagged_by"] for row in rows if not row["epoch"]} == {"self-confidence"}
    assert {row["flagged_by"] for row in rows if row["epoch"]} <= {"both", "isolation"}
    confidence = [float(row["self_confidence"]) for row in rows]
    assert confidence == sorted(confidence)
    said = " ".join(capsys.readouterr().out.split())
    assert "both checks flag" in said
    page = Path("audit/audit.html").read_text()
    assert "Two checks" in page
    assert "self-confidence" in page


def test_nothing_is_left_where_something_is(somewhere_else: None) -> None:
    Path("audit").mkdir()
    (Path("audit") / "mine.txt").write_text("keep")
    assert main([*QUICK, "--out", "audit"]) == 2
    assert [path.name for path in Path("audit").iterdir()] == ["mine.txt"]


def test_a_training_too_short_for_a_round(somewhere_else: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK[:-1], "9", "--out", "audit"]) == 2
    assert "first round is at epoch 9 and the training has 3" in capsys.readouterr().err
    assert not Path("audit").exists()


def test_an_unknown_data_set(somewhere_else: None) -> None:
    from holdfast.cli.commands.audit.poison import parse_poison

    with pytest.raises(ConfigError, match="digts"):
        parse_poison(["--data", "digts"])
