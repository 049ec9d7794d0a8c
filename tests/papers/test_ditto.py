import re
import statistics
from dataclasses import replace

import pytest
import torch
from holdfast.papers.fingerprint import Fingerprint

from holdfast.data import FEDERATIONS
from holdfast.data.surrogate import Surrogate
from holdfast.errors import DataError
from holdfast.models.registry import MODELS
from holdfast.papers import ditto, ditto_claims, ditto_more, ditto_surrogate
from holdfast.papers.ditto_cells import KEPT, build_parts, run_federations
from holdfast.papers.ditto_columns import Setting, is_strong, kind_of, threat_of
from holdfast.papers.ditto_tables import COLUMNS, FULL, SURROGATE, TABLE_3, TABLE_5
from holdfast.papers.engine.execute import Outcome
from holdfast.papers.engine.results import Results, collect, judge
from tests.data.test_vehicle import cells, put

EXPERIMENTS = (*ditto.EXPERIMENTS, *ditto_more.EXPERIMENTS, *ditto_surrogate.EXPERIMENTS)
FIVE = ("vehicle", "femnist", "fashion-mnist", "celeba-leaf", "stackoverflow")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ------------------------------------------------------------------------------------------------- printed numbers


@pytest.mark.parametrize(
    ("row", "mean"),
    [
        ("ditto-auto", 0.708),
        ("fedmgda", 0.642),
        ("clipping", 0.583),
        ("median", 0.555),
        ("krum", 0.539),
        ("k-norm", 0.524),
        ("k-loss", 0.480),
        ("global", 0.540),
        ("local", 0.668),
        ("fair", 0.457),
    ],
)
def test_the_printed_tables_give_the_averages_that_were_recomputed_from_the_paper(row, mean):
    entries = [FULL[name][column][row][0] for name in FIVE for column in list(FULL[name])[1:]]
    assert len(entries) == 45
    assert statistics.fmean(entries) == pytest.approx(mean, abs=6e-4)


@pytest.mark.parametrize("name", FIVE)
def test_the_best_lambda_of_table_4_is_a_row_of_the_full_table(name):
    for entries in FULL[name].values():
        fixed = [entry for row, entry in entries.items() if row.startswith("ditto-") and row[-1].isdigit()]
        assert len(fixed) == 3
        assert entries["ditto-best"] in fixed


def test_local_models_are_printed_alike_under_all_attacks_by_as_many():
    for name in ("vehicle", "fashion-mnist", "femnist", "celeba-leaf", "femnist-skewed"):
        table = FULL[name]
        for percent in (20, 50, 80):
            assert table[f"a1-{percent}"]["local"] == table[f"a2-{percent}"]["local"]
        assert table["a3-20"]["local"] == table["a1-20"]["local"]


def test_table_5_agrees_with_the_full_tables():
    for name, rule in (("femnist", "clipping"), ("celeba-leaf", "multi-krum")):
        for column, entries in TABLE_5[name].items():
            assert all(entries[row] == FULL[name][column][row] for row in ("global", rule, "ditto-best"))


def test_every_printed_entry_of_the_full_tables_has_a_cell():
    for experiment, name in zip(ditto.EXPERIMENTS, COLUMNS, strict=True):
        shown = sum(metric.endswith("/pooled") for of in experiment.printed.values() for metric in of)
        known = sum(len(FULL[name][column]) for column in COLUMNS[name] if column in FULL[name])
        assert shown == known > 0
    shown = sum(metric.endswith("/mean") for of in EXPERIMENTS[-1].printed.values() for metric in of)
    assert shown == sum(map(len, SURROGATE.values())) == 130
    assert sum(metric.endswith("/pooled") for of in ditto_more.EXPERIMENTS[0].printed.values() for metric in of) == sum(
        map(len, TABLE_3.values())
    )


# --------------------------------------------------------------------------------------------------------- settings


def all_cells():
    for experiment in EXPERIMENTS:
        for scale in experiment.scales:
            for cell in experiment.cells_at(scale):
                yield experiment, scale, cell


def test_every_cell_names_methods_and_options_that_exist_and_rows_that_they_give():
    for _, _, cell in all_cells():
        settings = cell.settings
        assert settings["model"] in MODELS
        for changes in settings.get("runs") or [{}]:
            merged = {**settings, **changes}
            parts = build_parts(merged, 0)
            strong = settings["threat"] is not None and (
                settings["threat"]["name"] == "a3" or settings["threat"]["ratio"] > 0.5
            )
            labels = {"global"}
            for method in parts["personalize"]:
                settled = method.facing(strong)
                settled.check(parts["settings"])
                labels.add(settled.label)
                tuner = getattr(settled, "tuner", lambda: None)()
                labels |= {tuner.label} if tuner is not None else set()
            assert {label for of in settings["rows"].values() for label in of} <= labels


def test_the_paper_scale_is_the_published_setting():
    cells = {cell.name: cell.settings for cell in ditto.TABLE_8.cells_at("paper")}
    assert len(cells) == 10 * 9
    rounds = cells["a3-50/plain"]["rounds"]
    assert {key: rounds[key] for key in ("rounds", "cohort", "batch_size", "local_steps", "learning_rate")} == {
        "rounds": 5000,
        "cohort": 10,
        "batch_size": 16,
        "local_steps": 2,
        "learning_rate": 0.05,
    }
    assert cells["clean/plain"]["model"] == "cnn-fashion"
    assert {"name": "finetuning", "epochs": 50} in cells["clean/plain"]["personalize"]
    assert [run["aggregator"]["epsilon"] for run in cells["clean/fedmgda"]["runs"]] == [0, 0.1, 0.5, 1]
    assert cells["a3-50/krum"]["threat"] == {"name": "a3", "ratio": 0.5}
    assert all(cell.most_seeds is None for cell in ditto.TABLE_8.cells_at("paper"))


def test_the_cpu_scale_has_three_seeds_where_the_issue_asks_for_them():
    cells = ditto.TABLE_8.cells_at("cpu")
    several = {cell.name.partition("/")[0] for cell in cells if cell.most_seeds is None}
    assert several == {"clean", "a1-50", "a3-20"}
    assert {cell.most_seeds for cell in cells} == {None, 1}
    assert {cell.settings["model"] for cell in cells} == {"cnn-half"}


def test_tables_share_their_federations_so_that_each_is_computed_once():
    full = [cell.settings for cell in ditto.TABLE_8.cells_at("cpu")]
    by_name = {experiment.name: experiment for experiment in EXPERIMENTS}
    assert all(cell.settings in full for cell in by_name["ditto/table4"].cells_at("cpu"))
    new = [cell.name for cell in by_name["ditto/figure5"].cells_at("cpu") if cell.settings not in full]
    assert {name.partition("/")[2] for name in new} == {"term-2", "term-5"}
    paper = [cell.settings for name in ("ditto/table7", "ditto/table10") for cell in by_name[name].cells_at("paper")]
    new = [cell.name for cell in by_name["ditto/table5"].cells_at("paper") if cell.settings not in paper]
    assert {name.partition("/")[2] for name in new} == {"robust-ditto"}


def test_devices_are_told_of_a_strong_attack_as_the_printed_numbers_imply():
    strong = [column for column in COLUMNS["celeba-leaf"] if is_strong(column)]
    assert strong == ["a1-80", "a2-80", "a3-10", "a3-15", "a3-20"]
    candidates = Setting("stackoverflow").plain("a1-80")["personalize"][-2]["candidates"]
    assert candidates == [0.01, 0.05, 0.1]
    assert threat_of("clean") is None


def test_convex_models_are_not_fine_tuned_and_rows_the_paper_leaves_out_are_left_out():
    rows = {name: set() for name in COLUMNS}
    for experiment, name in zip(ditto.EXPERIMENTS, COLUMNS, strict=True):
        for cell in experiment.cells_at("paper"):
            rows[name] |= set(cell.settings["rows"])
    assert "finetuning" not in rows["vehicle"] | rows["stackoverflow"]
    assert "fedmgda" not in rows["femnist-skewed"]
    assert "multi-krum" not in rows["stackoverflow"]


@pytest.mark.parametrize("name", ["vehicle", "femnist", "femnist-skewed", "celeba-leaf", "stackoverflow"])
def test_a_table_whose_data_is_not_here_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    with pytest.raises(DataError, match=re.escape(FEDERATIONS[name].by_hand[:30])):
        run_federations(ditto.SETTINGS[name].plain("clean"), seed=0)


# ------------------------------------------------------------------------------------------------------------ cells

TOY = Setting("surrogate", options={"q": 5}, rounds={"rounds": 6, "executor": "batched", "chunk": 10}, by_seed=True)


def short(settings, **changes):
    return {**settings, **changes}


def test_one_federation_gives_every_row_of_the_plain_cell():
    toy = replace(TOY, epochs=1)
    found = run_federations(toy.plain("a1-50"), seed=1)
    rows = ("global", "local", "ditto-0.1", "ditto-1", "ditto-2", "ditto-auto", "ditto-best", "finetuning")
    wanted = {f"{row}/{name}" for row in rows for name in KEPT} | {
        "coverage",
        "dropped",
        "diverged",
        "ditto-best/chosen",
    }
    assert set(found) == wanted
    best = ("ditto-0.1", "ditto-1", "ditto-2")[int(found["ditto-best/chosen"])]
    assert all(found[f"ditto-best/{name}"] == found[f"{best}/{name}"] for name in KEPT)


def test_the_rows_of_a_cell_are_those_of_separate_federations():
    together = run_federations(replace(TOY, epochs=0).plain("a3-20"), seed=0)
    alone = run_federations(
        short(TOY.base("a3-20"), personalize=[{"name": "ditto", "lambda_": 1.0}], rows={"ditto-1": ["ditto-1"]}), seed=0
    )
    shared = run_federations(short(TOY.base("a3-20"), rows={"global": ["global"]}), seed=0)
    assert all(alone[f"ditto-1/{name}"] == together[f"ditto-1/{name}"] for name in KEPT)
    assert all(shared[f"global/{name}"] == together[f"global/{name}"] for name in KEPT)


def test_local_models_fare_alike_under_all_attacks_by_as_many():
    """Every client takes part: one that never does is scored with the shared model, which differs."""
    everybody = replace(TOY, rounds={"rounds": 2, "cohort": 100, "executor": "batched"})
    rows = {"local": ["local"]}
    found = [
        run_federations(short(everybody.base(column), personalize=[{"name": "local"}], rows=rows), seed=2)
        for column in ("a1-20", "a2-20", "a3-20")
    ]
    assert found[0]["coverage"] == 1
    assert found[0] == found[1] == found[2]


def test_the_setting_of_a_row_is_chosen_on_validation_data_and_where_asked_on_test_data():
    """Steps of 1e-6 leave the model at its start; validation and test both prefer the other run."""
    base = short(TOY.base("clean"), rows={"global": ["global"]})
    steps = [{"rounds": {**base["rounds"], "rounds": 30, "learning_rate": rate}} for rate in (1e-6, 0.1)]
    alone = [run_federations(short(base, **step), seed=0) for step in steps]
    assert alone[1]["global/mean"] > alone[0]["global/mean"]
    for by in ("validation", "test"):
        found = run_federations(short(base, runs=steps, by=by), seed=0)
        assert found["global/chosen"] == 1
        assert found["global/mean"] == alone[1]["global/mean"]


def test_the_cells_of_vehicle_run_on_a_file_of_its_form(tmp_path, monkeypatch):
    put(tmp_path, cells())
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    setting = replace(ditto.SETTINGS["vehicle"], rounds={"rounds": 2})
    plain = run_federations(setting.plain("a3-20"), seed=0)
    chosen = run_federations(setting.changed("a3-20", "fedmgda"), seed=0)
    assert "finetuning/pooled" not in plain
    assert 0 <= plain["ditto-auto/pooled"] <= 1
    assert chosen["fedmgda/chosen"] in range(4)


def test_the_rivals_of_table_3_run_and_each_gives_its_row():
    rivals = ditto_more.rivals(replace(TOY, rounds={"rounds": 1, "executor": "batched"}), "a1-50")
    given = {}
    for settings in rivals.values():
        for run in [settings, *settings.get("runs", ())]:
            for method in run.get("personalize", ()):
                if method["name"] in ("ewc", "skl", "mapper", "per-fedavg"):
                    method["epochs"] = 1
        given |= run_federations(settings, seed=0)
    rows = {metric.partition("/")[0] for metric in given if metric.endswith("/pooled")}
    assert rows == {"l2sgd", "ewc", "skl", "per-fedavg", "mapper", "apfl"}
    assert {row for row in rows if f"{row}/chosen" in given} == rows - {"mapper"}


def test_a_wrecked_model_still_gives_numbers_for_a_results_file():
    base = TOY.base("a3-50")
    wild = short(base, rounds={**base["rounds"], "rounds": 12}, threat={"name": "a3", "ratio": 0.5, "boost": 1e30})
    found = run_federations(short(wild, rows={"global": ["global"]}), seed=0)
    assert all(torch.isfinite(torch.tensor(value)) for value in found.values())
    assert found["global/loss_std"] <= 1e12


def test_the_seed_draws_the_surrogate_but_not_real_data(monkeypatch):
    seen = []
    monkeypatch.setattr(Surrogate, "load", lambda self, root, seed=0: seen.append(seed) or 1 / 0)
    for by_seed in (True, False):
        with pytest.raises(ZeroDivisionError):
            run_federations(replace(TOY, by_seed=by_seed).plain("clean"), seed=3)
    assert seen == [3, 0]
    assert not any(setting.by_seed for setting in (*ditto.SETTINGS.values(), ditto.FASHION_CPU))


# ----------------------------------------------------------------------------------------------------------- claims


def _unprinted(cell):
    return [f"{row}/pooled" for row in cell.settings["rows"]]


def results_as_printed(experiment, scale):
    """What the claims would read had we measured what is printed."""
    cells = experiment.cells_at(scale)
    outcomes = []
    for cell in cells:
        numbers = {metric: number.mean for metric, number in experiment.printed.get(cell.name, {}).items()}
        fixed = [numbers[metric] for metric in numbers if re.fullmatch(r"ditto-[\d.]+/pooled", metric)]
        if fixed:
            numbers = {"ditto-auto/pooled": max(fixed), "ditto-best/pooled": max(fixed), **numbers}
        outcomes.append(Outcome(cell.name, 0, numbers or dict.fromkeys(_unprinted(cell), 0.0), 1.0))
    blank = Results(experiment.name, scale, None, "2026", (0,), (), (), Fingerprint("", {}), {})
    return judge(experiment, replace(blank, cells=collect(experiment, cells, outcomes)))


@pytest.mark.parametrize("experiment", ditto.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_the_claims_hold_for_the_printed_numbers(experiment):
    """A table doesn't make a claim that the paper's own exceptions contradict. Skewed FEMNIST prints no λ by device."""
    judged = results_as_printed(experiment, "paper")
    assert [claim.name for claim in judged.claims if claim.holds is not True] == []


def test_the_claims_of_the_surrogate_hold_for_the_numbers_of_its_design():
    judged = results_as_printed(ditto_surrogate.SURROGATE_EXPERIMENT, "cpu")
    assert [claim.name for claim in judged.claims if not claim.holds] == []


def test_a_claim_fails_where_an_entry_contradicts_it():
    experiment = ditto.TABLE_8
    numbers = {"clean/plain": {"ditto-1/pooled": 0.9, "global/pooled": 0.89}}
    outcomes = [Outcome(cell, 0, metrics, 1.0) for cell, metrics in numbers.items()]
    cells = [cell for cell in experiment.cells_at("cpu") if cell.name in numbers]
    blank = Results(experiment.name, "cpu", None, "2026", (0,), (), (), Fingerprint("", {}), {})
    results = replace(blank, cells=collect(experiment, cells, outcomes))
    verdict = ditto_claims.at_least(results, "ditto-1", "global", ("clean",), 0.02)
    assert not verdict.holds
    assert "0.010 in clean" in verdict.evidence
    assert kind_of("ditto-1") == "plain"
