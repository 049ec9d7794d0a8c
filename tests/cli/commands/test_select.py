import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from holdfast.cli.commands import report, runs
from holdfast.cli.commands.select import by_curves, select
from holdfast.cli.main import main
from holdfast.errors import ConfigError, DataError, HoldfastError
from holdfast.finetuning.language_models import fine_tuning
from holdfast.finetuning.selection.names import METHODS
from holdfast.training import Run
from tests.finetuning.small import instructions
from tests.report.reading import read_page

QUICK = ["--proxy", "scratch", "--clusters", "4", "--batch-size", "16", "--epochs", "2", "--max-length", "48"]


@pytest.fixture(autouse=True)
def data(somewhere_else: None, tmp_path: Path) -> Path:
    rows = instructions(96).rows
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(*words: str) -> Path:
    select.main(["s2l", "--data", "train.jsonl", *QUICK, "--out", "out", *words])
    return Path("out")


def test_a_directory_is_left_behind(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("--budget", "25%")
    subset = (out / "subset.jsonl").read_text().splitlines()
    assert len(subset) == 24
    assert set(subset) < set(data.read_text().splitlines())
    table = pq.read_table(out / "clusters.parquet").to_pydict()
    assert table["id"] == list(range(96))
    kept = [line for line, chosen in zip(data.read_text().splitlines(), table["chosen"], strict=True) if chosen]
    assert kept == subset
    results = Run.open(out).results
    assert results is not None
    assert results["sources"]["sums"] == {"examples": 48, "chosen": 8}
    assert set(results["seconds"]) == {"training", "recording", "recording_by_model"}
    said = capsys.readouterr().out
    assert "24 of 96 examples, of 12 clusters" in said
    page = (out / "report.html").read_text()
    assert "a small GPT-NeoX trained from scratch" in page
    assert "24 of 96 examples" in page
    assert "Training the proxy took" in page


def test_the_same_curves_give_another_number_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("--budget", "25%")
    monkeypatch.setattr(by_curves, "record_trajectories", None)
    words = ["--data", "train.jsonl", "--trajectories", str(out / "trajectories.parquet"), "--clusters", "4"]
    select.main(["s2l", *words, "--budget", "25%", "--out", "again"])
    select.main(["s2l", *words, "--budget", "6", "--out", "few"])
    assert Path("again/subset.jsonl").read_text() == (out / "subset.jsonl").read_text()
    assert len(Path("few/subset.jsonl").read_text().splitlines()) == 6


def test_a_killed_selection_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    whole = run("--budget", "50%")
    whole.rename("whole")
    monkeypatch.setenv("COLUMNS", "40")
    original = fine_tuning.save_state

    def killed(state: dict, path: Path) -> None:
        original(state, path)
        if state["step"] == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(fine_tuning, "save_state", killed)
    place = "out[a]/of a name that is longer than the line of this console"
    with pytest.raises(KeyboardInterrupt):
        run("--budget", "50%", "--out", place)
    assert f"holdfast select --resume '{place}'" in capsys.readouterr().out
    Path(place).rename("out")
    assert Run.open(Path("out")).results is None
    monkeypatch.setattr(fine_tuning, "save_state", original)
    with pytest.raises(ConfigError, match="clusters would change"):
        select.main(["s2l", "--resume", "out", "--clusters", "5"])
    select.main(["s2l", "--resume", "out"])
    for name in ("subset.jsonl", "trajectories.parquet", "clusters.parquet"):
        assert Path("out", name).read_bytes() == Path("whole", name).read_bytes()
    with pytest.raises(ConfigError, match="finished"):
        select.main(["s2l", "--resume", "out"])


def test_rows_that_stay_on_disk_are_chosen_from_alike() -> None:
    run("--budget", "25%")
    select.main(["--data", "train.jsonl", *QUICK, "--out", "disk", "--budget", "25%", "--on-disk", "yes"])
    for name in ("subset.jsonl", "trajectories.parquet", "clusters.parquet", "weights.parquet"):
        assert Path("disk", name).read_bytes() == Path("out", name).read_bytes()
    assert not list(Path().glob(".holdfast-*"))


def test_ids_and_weights_say_what_the_subset_says(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run("--budget", "25%", "--for-trainer", "axolotl")
    ids = [int(line) for line in (out / "ids.txt").read_text().split()]
    lines = data.read_text().splitlines()
    assert [lines[place] for place in ids] == (out / "subset.jsonl").read_text().splitlines()
    weights = pq.read_table(out / "weights.parquet").to_pydict()
    assert weights["id"] == ids
    assert np.mean(weights["weight"]) == pytest.approx(1)
    messages = [json.loads(line) for line in (out / "messages.jsonl").read_text().splitlines()]
    assert [row["weight"] for row in messages] == weights["weight"]
    assert "messages.jsonl" in (out / "axolotl.yaml").read_text()
    results = Run.open(out).results
    assert results is not None
    assert {finding["check"] for finding in results["health"]["findings"]} >= {"the proxy has learned"}
    said = capsys.readouterr().out
    assert "Estimate: training the proxy takes about" in said
    assert "By the size of the data: points of a curve 3" in said
    assert results["health"]["findings"][0]["sentence"] in said or results["health"]["verdict"] == "ok"


@pytest.mark.parametrize("method", ["random", "source-balanced", "longest", "learnability", "facility-location"])
def test_other_methods_leave_the_same_files(method: str, data: Path) -> None:
    options = QUICK[4:] if method in ("learnability", "facility-location") else []
    proxy = ["--proxy", "scratch"] if options else []
    select.main([method, "--data", "train.jsonl", *proxy, *options, "--budget", "12", "--out", "out"])
    subset = Path("out/subset.jsonl").read_text().splitlines()
    assert len(set(subset)) == 12
    assert set(subset) < set(data.read_text().splitlines())
    assert len(Path("out/ids.txt").read_text().split()) == 12
    assert f"chosen by {method}" in Path("out/report.html").read_text()
    if method == "source-balanced":
        assert {json.loads(line)["source"] for line in subset} == {"sums", "words", "names"}


def test_messages_in_parquet(tmp_path: Path) -> None:
    import pyarrow as pa

    rows = [
        {"messages": [{"role": "user", "content": f"Say {i}."}, {"role": "assistant", "content": f"It is {i}."}]}
        for i in range(40)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "chat.parquet")
    select.main(["s2l", "--data", "chat.parquet", *QUICK, "--budget", "10", "--out", "chat"])
    assert pq.read_table("chat/subset.parquet").num_rows == 10
    assert "Sources" not in Path("chat/report.html").read_text()


def test_a_folder_with_times_is_chosen_from_in_parquet() -> None:
    """JSON has no times, and that was found out after the training."""
    import pyarrow as pa

    pytest.importorskip("datasets")
    when = pa.array([1577836800000000001] * 40, pa.timestamp("ns"))
    Path("folder").mkdir()
    pq.write_table(pa.table({"prompt": ["Say it."] * 40, "response": ["so"] * 40, "when": when}), "folder/a.parquet")
    select.main(["s2l", "--data", "folder", *QUICK, "--budget", "10", "--out", "out"])
    assert pq.read_table("out/subset.parquet")["when"].combine_chunks() == when[:10]


def test_sources_can_be_ignored() -> None:
    run("--budget", "12", "--no-by-source")
    clusters = pq.read_table("out/clusters.parquet").to_pydict()
    assert len(set(clusters["cluster"])) <= 4


def test_options_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    select.main(["s2l", "--data", "train.jsonl", *QUICK, "--print-config"])
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["clusters"] == 4
    Path("s2l.yaml").write_text(printed)
    select.main(["s2l", "--config", "s2l.yaml", "--budget", "12", "--out", "out"])
    assert len(Path("out/subset.jsonl").read_text().splitlines()) == 12
    Path("s2l.yaml").write_text("cluster: 4\n")
    with pytest.raises(ConfigError, match="unknown key 'cluster'; did you mean 'clusters'"):
        select.main(["s2l", "--config", "s2l.yaml"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to choose from"),
        (["--data", "missing.jsonl"], "there is no file missing.jsonl"),
        (["--data", "train.jsonl", "--budget", "lots"], "the budget is 'lots'"),
        (["--data", "train.jsonl", "--budget", "97"], "give a number from 1 to 96"),
        (["--data", "train.jsonl", "--source-column", "topic"], "no column 'topic'"),
        (
            ["--data", "train.jsonl", "--source-column", "instruction", "--budget", "95"],
            "96 sources and the budget is 95, .* --no-by-source, or .* --source-column",
        ),
        (["--data", "train.jsonl", "--proxy", "./nowhere"], "'./nowhere' can't be loaded"),
        (["--data", "train.jsonl", "--trajectories", "t.parquet"], "t.parquet can't be read"),
        (["--data", "train.jsonl", "--trajectories", "t.parquet", "--epochs", "9"], "--epochs would change nothing"),
        (["--data", "train.jsonl", *QUICK, "--every", "99"], "every 99 steps and the training has 12"),
        (["--data", "train.jsonl", *QUICK, "--proxy-examples", "500"], "--proxy-examples is '500' and there are 96"),
        (["--data", "train.jsonl", *QUICK, "--learning-rate", "0"], r"--learning-rate is 0\.0; give a number above 0"),
        (["--data", "train.jsonl", "--proxy", "my/model", "--four-bit"], "--four-bit needs a pretrained --proxy and"),
        (["--data", "train.jsonl", *QUICK, "--every", "0"], "--every is 0; give at least 1"),
        (["--data", "train.jsonl", *QUICK, "--clusters", "0"], "--clusters is 0; give at least 1"),
        (["--data", "train.jsonl", *QUICK, "--smallest", "-3"], "--smallest is -3; give at least 0"),
        (["--data", "train.jsonl", *QUICK, "--epochs", "0"], "--epochs is 0; give at least 1"),
        (["--data", "train.jsonl", *QUICK, "--max-length", "1"], "--max-length is 1; give at least 2"),
        (
            ["--data", "train.jsonl", *QUICK, "--max-length", "5"],
            "all prompts .* in their template are longer than 5 tokens",
        ),
        (["--data", "train.jsonl", *QUICK, "--template", "nothing"], "there is no template 'nothing'"),
        (["--data", "train.jsonl", "--method", "random", "--epochs", "2"], "--method random does not look at --epochs"),
        (["--data", "train.jsonl", "--method", "learnability", "--points", "2"], "does not look at --points"),
        (["--data", "train.jsonl", *QUICK, "--every", "2", "--points", "2"], "both say when losses are recorded"),
        (["--data", "train.jsonl", *QUICK, "--lora", "0"], "--lora is 0; give at least 1"),
        (["--data", "train.jsonl", *QUICK, "--device", "banana"], "can't compute on the device 'banana'"),
    ],
)
def test_mistakes_are_said_in_a_sentence_before_anything_is_written(words: list[str], message: str) -> None:
    with pytest.raises(HoldfastError, match=message):
        select.main(["s2l", *words, "--out", "out"])
    assert [place.name for place in Path().iterdir()] == ["train.jsonl"]


def test_the_tokenizer_from_scratch_knows_the_template(data: Path) -> None:
    """Letter by letter it would take 33 tokens of every example."""
    run("--budget", "25%", "--max-length", "32")
    assert not pq.read_table("out/trajectories.parquet")["undefined"].to_numpy().any()


def half_too_long(data: Path) -> None:
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for row in rows[::2]:
        row["instruction"] += " word" * 80
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_budget_that_too_few_can_fill_is_refused_before_the_training(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half_too_long(data)
    message = "budget is 60 and 48 of 96 examples have no response within 48 tokens; choose at most 48, or raise"
    with pytest.raises(ConfigError, match=message):
        run("--budget", "60")
    assert not Path("out").exists()
    out = run("--budget", "48")
    assert "48 of 96 examples have no response within 48 tokens and can't be chosen." in capsys.readouterr().out
    recorded = ["--trajectories", str(out / "trajectories.parquet")]
    with pytest.raises(ConfigError, match=r"have no loss in out/trajectories\.parquet; choose at most 48$"):
        select.main(["s2l", "--data", "train.jsonl", *recorded, "--budget", "49", "--out", "more"])
    assert not Path("more").exists()
    select.main(["s2l", "--data", "train.jsonl", *recorded, "--budget", "9", "--out", "less"])
    assert "48 of 96 examples have no loss in out/trajectories.parquet and can't" in capsys.readouterr().out


def test_the_command_on_the_page_chooses_as_the_selection_did(data: Path) -> None:
    data.write_text(data.read_text().replace('"source"', '"kind of task"'))
    asked = ["--source-column", "kind of task", "--no-by-source", "--seed", "3", "--smallest", "9"]
    out = run(*asked, "--start", "k-means++", "--budget", "25%")
    section = read_page((out / "report.html").read_text()).one("section", id="facts")
    words = shlex.split(section.one("pre").text)
    assert words[:2] == ["holdfast", "select"]
    select.main([*words[2:], "--budget", "25%", "--out", "again"])
    for file in ("subset.jsonl", "clusters.parquet"):
        assert Path("again", file).read_bytes() == (out / file).read_bytes()


def test_a_selection_goes_on_from_any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("--budget", "25%")
    subset = (out / "subset.jsonl").read_text()
    (out / "results.json").unlink()
    (out / "subset.jsonl").unlink()
    with pytest.raises(ConfigError, match="data would change"):
        select.main(["s2l", "--resume", "out", "--data", "other.jsonl"])
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    select.main(["s2l", "--resume", "../out", "--data", "../train.jsonl"])
    assert Path("../out/subset.jsonl").read_text() == subset


def test_what_was_stopped_before_it_began_can_not_be_continued(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(by_curves, "record_trajectories", stopped)
    with pytest.raises(KeyboardInterrupt):
        run("--budget", "25%")
    assert "--resume" not in capsys.readouterr().out


def test_trajectories_of_other_data_are_refused() -> None:
    out = run("--budget", "25%")
    file = Path("train.jsonl")
    file.write_text("\n".join(file.read_text().splitlines()[:50]) + "\n")
    with pytest.raises(DataError, match=r"96 examples and train\.jsonl has 50"):
        select.main(["s2l", "--data", "train.jsonl", "--trajectories", str(out / "trajectories.parquet")])


def test_trajectories_of_as_many_other_examples_are_refused() -> None:
    out = run("--budget", "25%")
    file = Path("train.jsonl")
    file.write_text(file.read_text().replace("it is", "that is"))
    with pytest.raises(DataError, match=r"as many examples as train\.jsonl has, but of others"):
        select.main(["s2l", "--data", "train.jsonl", "--trajectories", str(out / "trajectories.parquet")])


def test_a_directory_is_not_written_twice() -> None:
    run("--budget", "25%")
    with pytest.raises(ConfigError, match="there is a run at out already"):
        run("--budget", "50%")


def test_a_subset_that_is_there_is_not_overwritten() -> None:
    Path("out").mkdir()
    Path("out/subset.parquet").write_text("mine")
    with pytest.raises(ConfigError, match=r"out/subset\.parquet is there already"):
        run("--budget", "25%")
    assert [place.name for place in Path("out").iterdir()] == ["subset.parquet"]


def test_only_some_are_trained_on_and_all_are_recorded() -> None:
    out = run("--budget", "25%", "--proxy-examples", "50%")
    table = pq.read_table(out / "trajectories.parquet")
    assert table.num_rows == 96
    assert np.isfinite(table.column(2).to_numpy()).all()


def test_selections_are_listed_as_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("--budget", "25%")
    Run.create(Path("begun"), Run.open(out).config, kind="selection", folders=())
    assert not {"checkpoints", "plans"} & {place.name for place in out.iterdir()}
    capsys.readouterr()
    assert main(["runs", "list", "."]) == 0
    begun, finished = sorted(line for line in capsys.readouterr().out.splitlines() if "s2l" in line)
    assert "interrupted" in begun
    assert "24 of 96 chosen" in finished


def test_a_selection_has_nothing_to_compare_or_to_report_again() -> None:
    run("--budget", "25%")
    with pytest.raises(ConfigError, match="out is a selection of data"):
        runs.main(["compare", "out", "out"])
    with pytest.raises(ConfigError, match=r"its page is out/report\.html"):
        report.main(["out"])
    with pytest.raises(ConfigError, match="`holdfast runs list selections` shows those there are"):
        select.main(["s2l", "--resume", "selections/nothing"])


def test_alone_it_lists_the_ways(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["select"])
    shown = capsys.readouterr().out
    assert all(method in shown for method in METHODS)


def test_curves_are_chosen_by_again_with_the_columns_that_they_were_recorded_with(monkeypatch):
    rows = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()]
    renamed = [{("kind of task" if name == "source" else name): value for name, value in row.items()} for row in rows]
    Path("named.jsonl").write_text("".join(json.dumps(row) + "\n" for row in renamed))
    out = run("--data", "named.jsonl", "--source-column", "kind of task", "--budget", "25%")
    monkeypatch.setattr(by_curves, "record_trajectories", None)
    words = ["--data", "named.jsonl", "--trajectories", str(out / "trajectories.parquet"), "--clusters", "4"]
    select.main(["s2l", *words, "--budget", "25%", "--out", "again"])
    assert Path("again/subset.jsonl").read_text() == (out / "subset.jsonl").read_text()
