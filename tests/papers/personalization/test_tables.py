"""Personalized FL with spurious features as experiments: one shared model per cell, every method on top of it."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch

from holdfast.federated import FineTuned, Transferability
from holdfast.federated.personalization.early_stopping import RECORDED
from holdfast.papers.engine.catalog import find
from holdfast.papers.engine.experiment import Scale, Verdict
from holdfast.papers.engine.kinds import function_of, key_of
from holdfast.papers.engine.results import CellResult, Measured, Metric, NotMeasuredError, Results
from holdfast.papers.personalization import claims
from holdfast.papers.personalization import figures_and_studies as shortcuts_more
from holdfast.papers.personalization import tables as shortcuts
from holdfast.papers.personalization.cells import chosen_checkpoints, evenly, run_personalization, simulate_gaussian

NAMES = ("table2", "table3", "figure1", "figure2", "figure3", "robustness", "imperfect", "composition", "figure8")
SEEDS = (0, 1, 2)
#: What seeds differ by, around a given mean.
NOISE = (-0.001, 0.0, 0.001)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_can_be_found_and_its_cells_be_called(name):
    experiment = find(f"personalization/{name}")
    for scale in experiment.scales:
        for cell in experiment.cells_at(scale):
            assert callable(function_of(cell.kind))
    rows = set() if experiment.grid is None else set(experiment.grid.rows)
    methods = {row for cell in experiment.cells_at("smoke") for row in cell.settings.get("methods", {})}
    assert rows <= methods | {"global"}
    assert experiment.claims
    assert experiment.golden


def test_a_small_cell_has_every_number_and_they_fit_together():
    setting = shortcuts.small_setting("smoke")
    wanted = ("ft", "uw", "jtt-injected", "ours-1-1")
    methods = shortcuts.with_epochs(wanted, 2)
    methods["spare"] = {"policy": "spare", "options": {"infer_epoch": 1}, "epochs": 2}
    found = run_personalization({**setting, "methods": methods}, seed=0)
    for row in ("global", *wanted, "spare"):
        assert found[f"{row}/average"] == pytest.approx(found[f"{row}/worst"] + abs(found[f"{row}/disparity"]) / 2)
        assert found[f"{row}/disparity"] == pytest.approx(found[f"{row}/accuracy"] - found[f"{row}/elsewhere"])
    for row in wanted:
        assert found[f"{row}/at2_accuracy"] == found[f"{row}/accuracy"]
        assert 0 <= found[f"{row}/transfer"] <= 1 and found[f"{row}/instability"] >= 0
    assert (found["ours-1-1/adversarial"], found["ours-1-1/weights"]) == (1, 1)
    assert 0 < found["epsilon"] <= 8 / 255
    again = run_personalization({**setting, "methods": {"ft": methods["ft"]}}, seed=0)
    assert again["ft/accuracy"] == found["ft/accuracy"], "methods don't change each other's draws"


def test_a_robust_rule_under_attack_is_one_setting():
    setting = {**shortcuts.small_setting("smoke"), "epsilon": 0.01}
    methods = {"ft": {"name": "ft", "options": {"epochs": 1, "checkpoints": 1}}}
    attacked = {"threat": {"name": "a1", "ratio": 0.25}, "aggregator": "multi-krum"}
    found = run_personalization({**setting, **attacked, "methods": methods}, seed=0)
    assert 0 <= found["ft/worst"] <= 1


def test_clients_are_taken_evenly_from_environments():
    class Fake:
        names = ("environment 0",) * 3 + ("environment 1",) * 3

        def __len__(self) -> int:
            return 6

    assert evenly(Fake(), 4) == [0, 1, 3, 4]  # type: ignore[arg-type]


def test_gaussian_cells_measure_shared_and_personal_models():
    shared = simulate_gaussian({"case": "a", "rounds": 20}, 0)
    assert shared["real"] > 0.3
    assert shared["spurious_noise"] > shared["real_noise"]
    free, held = (
        simulate_gaussian({"adversarial": a, "weights": b, "clients": 2}, 0) for a, b in ((0.0, 0.0), (10.0, 0.1))
    )
    assert free["spurious"] > held["spurious"]
    assert free["disparity"] > held["disparity"]


def test_the_same_cells_serve_the_table_and_its_figures():
    assert (
        shortcuts.TABLE3.cells_at("cpu") == shortcuts_more.FIGURE1.cells_at("cpu") == shortcuts.TABLE2.cells_at("cpu")
    )
    owned = {key_of(cell) for cell in shortcuts.TABLE2.cells_at("cpu")}
    for other in (
        shortcuts_more.FIGURE3,
        shortcuts_more.ROBUSTNESS,
        shortcuts_more.IMPERFECT,
        shortcuts_more.COMPOSITION,
    ):
        assert owned & {key_of(cell) for cell in other.cells_at("cpu")}


def test_clients_choose_the_earliest_best_checkpoint_and_those_with_little_validation_data_choose_together():
    record = torch.zeros(3, 2, len(RECORDED), dtype=torch.float64)
    accuracy, transferred = (RECORDED.index(name) for name in ("validation", "validation_transfer"))
    record[:, :, accuracy] = torch.tensor([[0.9, 0.9], [0.2, 0.8], [0.9, 0.7]])
    record[:, :, transferred] = torch.tensor([[0.5, 0.9], [1.0, 1.0], [1.0, 1.0]])
    many, few = torch.tensor([40, 40, 40]), torch.tensor([40, 5, 5])
    ours = Transferability(adversarial=1.0, weights=1.0)
    assert chosen_checkpoints(record, many, FineTuned()).tolist() == [0, 1, 0]
    assert chosen_checkpoints(record, many, ours).tolist() == [1, 1, 0], "what transfers counts for ours"
    assert chosen_checkpoints(record, few, FineTuned()).tolist() == [0, 1, 1]


# ------------------------------------------------------------------------------------------------------ claims


def made_up(
    cells: Mapping[str, Mapping[str, float | Sequence[float]]], scale: Scale = "cpu", missing: Sequence[str] = ()
) -> Results:
    """Results with a little noise around a mean, or with one value per seed."""

    def metric(value: float | Sequence[float]) -> Metric:
        values = value if isinstance(value, Sequence) else [value + each for each in NOISE]
        return Metric(Measured.of(list(values)))

    made = [
        CellResult(name, {key: metric(value) for key, value in numbers.items()}, SEEDS)
        for name, numbers in cells.items()
    ]
    made += [CellResult(name, {}, version=None) for name in missing]
    return Results("personalization/made-up", scale, SEEDS, claims.with_checkpoints_chosen(tuple(made)))


def table(
    column: str = "mnist-small", **changed: float | Sequence[float]
) -> dict[str, dict[str, float | Sequence[float]]]:
    """A cell with the numbers that the document prints; a name ``ft__worst`` is of that row."""
    printed = claims.printed_rows(column)
    numbers: dict[str, float | Sequence[float]] = {}
    for row, values in printed.items():
        worst, disparity, average = (*values, 0.9)[:3]
        for prefix in ("",) if row == "global" else ("", "chosen_"):
            numbers |= {f"{row}/{prefix}worst": [worst] * 3, f"{row}/{prefix}disparity": [disparity] * 3}
            numbers |= {f"{row}/{prefix}average": [average] * 3}
    numbers |= {f"{place}/chosen_transfer": 0.9 for place in ("ours", "ft")}
    for name, value in changed.items():
        row, _, rest = name.partition("__")
        numbers[f"{row}/{rest}"] = value
    return {f"{column}/all": numbers}


def verdicts(check: Callable[[Results], Verdict], *beds: Results) -> list[bool | None]:
    return [check(bed).holds for bed in beds]


def test_the_tables_claims_hold_on_the_documents_own_numbers():
    """On all four columns: the claims state what the document prints, also that UW is ahead on Coil20."""
    bed = made_up({name: cell for column in claims.PRINTED for name, cell in table(column).items()}, "paper")
    checks = (claims.least_disparity, claims.best_worst, claims.between, claims.cuts_disparity)
    for check in (*checks, claims.best_average, claims.adds_to_the_average):
        assert check(bed).holds, check(bed).evidence
    assert "bar: " in claims.best_worst(bed).evidence


def test_one_column_is_enough_to_fail_a_claim_at_paper_scale():
    columns = {name: cell for column in claims.PRINTED for name, cell in table(column).items()}
    columns |= table("celeba", uw__chosen_worst=0.95)
    verdict = claims.best_worst(made_up(columns, "paper"))
    assert verdict.holds is False
    assert verdict.evidence.startswith("celeba: 0.925 against 0.950 of uw")


def test_the_worst_environment_is_compared_with_every_printed_row():
    noisy = [0.85, 0.87, 0.90]
    beds = [made_up(table(uw__chosen_worst=value)) for value in (0.85, 0.9, noisy)]
    assert verdicts(claims.best_worst, *beds) == [True, False, None]
    assert verdicts(claims.best_worst, made_up(table(global__worst=0.9))) == [False]
    assert "within the noise" in claims.best_worst(beds[2]).evidence


def test_the_least_disparity_is_judged_without_its_sign():
    beds = [made_up(table(ours__chosen_disparity=value)) for value in (0.08, -0.3, [0.0, 0.1, 0.3])]
    assert verdicts(claims.least_disparity, *beds) == [True, False, None]
    shares = [made_up(table(ours__chosen_disparity=value)) for value in (0.03, 0.08, [0.0, 0.05, 0.1])]
    assert verdicts(claims.cuts_disparity, *shares) == [True, False, None]


def test_the_average_is_compared_with_every_printed_row_and_with_the_printed_gain():
    beds = [made_up(table(ours__chosen_average=value)) for value in (0.93, 0.8, [0.82, 0.9, 0.91])]
    assert verdicts(claims.best_average, *beds) == [True, False, None]
    assert verdicts(claims.adds_to_the_average, *beds) == [True, False, None]


def test_budgets_and_the_shared_model_are_judged_under_every_seed():
    def bed(epsilon: Sequence[float], success: Sequence[float], accuracy: float, elsewhere: float) -> Results:
        shared = {"everybody/accuracy": accuracy, "everybody/elsewhere": elsewhere}
        return made_up({"mnist-small/all": {"epsilon": epsilon, "success": success, **shared}})

    good = bed([0.031] * 3, [0.4] * 3, 0.86, 0.85)
    bad = bed([0.031, 0.031, 0.016], [0.4, 0.4, 0.2], 0.86, 0.8)
    for check in (claims.printed_budget, claims.budget_suffices, claims.hardly_biased):
        assert verdicts(check, good, bad) == [True, False]


def along(**changed: float | Sequence[float]) -> Results:
    """Fine-tuning, flipped labels and ours at three checkpoints."""
    numbers: dict[str, float | Sequence[float]] = {
        "global/accuracy": 0.85,
        "global/elsewhere": 0.85,
        "global/disparity": [0.01] * 3,
        "global/average": 0.85,
        "ft/accuracy": 0.98,
        "ft/elsewhere": 0.7,
    }
    for row, gaps, rates in (
        ("ft", (0.1, 0.2, 0.28), (0.5, 0.4, 0.2)),
        ("flipped", (0.02, 0.05, 0.1), (0.96, 0.97, 0.98)),
        ("ours", (0.02, 0.02, 0.02), (0.98, 0.98, 0.98)),
    ):
        for number, (gap, rate) in enumerate(zip(gaps, rates, strict=True), start=1):
            numbers |= {f"{row}/at{number}_disparity": gap, f"{row}/at{number}_transfer": rate}
        numbers |= {f"{row}/disparity": gaps[-1], f"{row}/transfer": rates[-1]}
    numbers |= {name.replace("__", "/"): value for name, value in changed.items()}
    return made_up({"mnist-small/all": numbers})


@pytest.mark.parametrize(
    ("check", "against", "undecided"),
    [
        (claims.departs_at_once, {"ft__at1_disparity": 0.001}, {"ft__at1_disparity": [0.0, 0.1, 0.02]}),
        (claims.learns_the_shortcut, {"ft__elsewhere": 0.83}, None),
        (claims.follows_transferability, {"ft__at3_transfer": 0.6, "ft__at1_transfer": 0.2}, None),
        (claims.loses_transferability, {"ft__transfer": 0.41}, None),
        (claims.flipped_labels_transfer, {"flipped__transfer": 0.94}, None),
        (claims.flipped_labels_double, {"flipped__at3_disparity": 0.02}, {"flipped__at3_disparity": [0.01, 0.05, 0.2]}),
        (claims.ours_drifts_less, {"ours__at3_disparity": 0.3}, {"ours__at3_disparity": [0.0, 0.1, 0.25]}),
    ],
)
def test_figure_1_can_hold_fail_and_be_undecided(check, against, undecided):
    assert verdicts(check, along(), along(**against)) == [True, False]
    if undecided is not None:
        assert verdicts(check, along(**undecided)) == [None]


def test_ranks_of_equals_are_shared():
    assert claims.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert claims.spearman([1, 1, 2, 3], [1, 1, 5, 6]) == pytest.approx(1)
    assert claims.spearman([1, 1, 1], [3, 2, 1]) == 0


def ablated(**changed: float | Sequence[float]) -> Results:
    def row(gap: float, transferred: float, unstable: float) -> dict[str, float]:
        return {"disparity": gap, "loss_disparity": 4 * gap, "transfer": transferred, "instability": unstable}

    every_row = {
        "all": {
            "ft": row(0.28, 0.2, 4.5),
            "flipped": row(0.1, 0.98, 1.5),
            "ours": row(0.02, 0.97, 0.3),
            "ours-1-1": row(0.05, 0.94, 0.7),
            "adversarial-only": row(0.07, 0.93, 1.0),
            "weights-only": row(0.09, 0.65, 1.4),
            "benign": row(0.1, 0.65, 1.1),
        },
        "ablation": {
            "adversarial-tuned": row(0.05, 0.96, 0.9),
            "weights-tuned": row(0.06, 0.8, 0.8),
            "benign-tuned": row(0.08, 0.7, 0.9),
        },
    }
    cells = {}
    for cell, rows in every_row.items():
        numbers = {f"{row}/{name}": value for row, numbers in rows.items() for name, value in numbers.items()}
        cells[f"mnist-small/{cell}"] = {name: changed.get(name, value) for name, value in numbers.items()}
    return made_up(cells)


NOISY = [0.0, 0.06, 0.12]


@pytest.mark.parametrize(
    ("check", "against", "undecided"),
    [
        (claims.both_terms, {"ours/disparity": 0.055}, {"weights-tuned/disparity": NOISY}),
        (claims.both_terms_of_loss, {"ours/loss_disparity": 0.3}, {"ours/loss_disparity": [0.0, 0.1, 0.3]}),
        (claims.each_term_helps, {"weights-tuned/disparity": 0.3}, {"ft/disparity": [0.0, 0.1, 0.3]}),
        (claims.benign_is_weaker, {"benign-tuned/disparity": 0.04}, {"benign-tuned/disparity": NOISY}),
        (claims.weights_transfer_less, {"weights-tuned/transfer": 0.99}, {"weights-tuned/transfer": [0.8, 0.9, 1.0]}),
        (claims.both_terms_at_1, {"ours-1-1/disparity": 0.08}, {"weights-only/disparity": NOISY}),
        (claims.benign_at_1, {"benign/transfer": 0.9}, {"benign/disparity": NOISY}),
        (claims.loss_disparity, {"ours/loss_disparity": 0.5}, None),
        (claims.logits_are_stabler, {"adversarial-tuned/instability": 1.6}, {"flipped/instability": [0.2, 1.0, 2.0]}),
        (claims.weights_stabilise, {"ours/instability": 1.0}, {"adversarial-tuned/instability": [0.2, 0.5, 0.6]}),
        (claims.gradients_change, {"ft/instability": 2.9}, None),
    ],
)
def test_the_ablation_can_hold_fail_and_be_undecided(check, against, undecided):
    assert verdicts(check, ablated(), ablated(**against)) == [True, False]
    if undecided is not None:
        assert verdicts(check, ablated(**undecided)) == [None]


def test_a_claim_on_a_cell_that_is_not_measured_says_so():
    bed = made_up({"mnist-small/all": {"ours/disparity": 0.02, "ft/disparity": 0.3}}, missing=["mnist-small/ablation"])
    with pytest.raises(NotMeasuredError, match="mnist-small/ablation is not measured"):
        claims.both_terms(bed)
    with pytest.raises(NotMeasuredError):
        claims.follows_transferability(made_up({}, missing=["mnist-small/all"]))


def attacked(ft: tuple[float, float], ours: tuple[float | Sequence[float], float | Sequence[float]]) -> Results:
    numbers = {"ft/transfer": ft[0], "ft/direct": ft[1], "ours/transfer": ours[0], "ours/direct": ours[1]}
    return made_up({"mnist-small/all": numbers})


def test_attacks_are_judged_by_what_they_gain():
    printed = attacked((0.561, 0.478), (0.675, 0.501))
    far = attacked((0.2, 0.3), (0.97, 0.55))
    noisy = attacked((0.561, 0.478), ([0.5, 0.6, 0.9], [0.4, 0.5, 0.6]))
    assert verdicts(claims.transfers_more, printed, far, noisy) == [True, True, None]
    assert verdicts(claims.transfers_little_more, printed, far, noisy) == [True, False, None]
    assert verdicts(claims.direct_hardly_gains, printed, far, noisy) == [True, False, None]
    assert verdicts(claims.transferred_beat_direct, printed, far) == [True, False]
    assert claims.transfers_more(attacked((0.6, 0.5), (0.5, 0.5))).holds is False
    assert "from 0.300 to 0.550" in claims.direct_hardly_gains(far).evidence


def imperfect(
    even: float | Sequence[float], uneven: float | Sequence[float], plain: float | Sequence[float]
) -> Results:
    def cell(ours: float | Sequence[float], fine_tuned: float | Sequence[float]) -> dict[str, float | Sequence[float]]:
        shared: dict[str, float | Sequence[float]] = {"everybody/accuracy": 0.85, "everybody/elsewhere": 0.84}
        return {
            "ft/chosen_disparity": fine_tuned,
            "ours/chosen_disparity": ours,
            "ours-1-1/chosen_disparity": ours,
            **shared,
        }

    first, second = cell(even, 0.285), cell(uneven, plain)
    return made_up({"even/all": first, "even/tuned": first, "uneven/all": second, "uneven/tuned": second})


def test_a_biased_shared_model_is_judged_by_the_methods_own_row():
    good, bad = imperfect(0.081, 0.124, 0.285), imperfect(0.081, 0.02, 0.03)
    noisy = imperfect(0.081, [0.0, 0.1, 0.4], [0.1, 0.3, 0.5])
    assert verdicts(claims.degrades_gently, good, bad, noisy) == [True, False, None]
    assert verdicts(claims.degrades_gently_at_1, good, bad, noisy) == [True, False, None]
    assert verdicts(claims.bias_costs, good, bad, noisy) == [True, False, None]
    assert verdicts(claims.fine_tuning_forgets, good, bad, noisy) == [True, False, None]


def composed(krum: float | Sequence[float], mean: float = 0.8, spare: float | Sequence[float] = 0.8) -> Results:
    krum_cell = {"ft/chosen_worst": 0.7, "ours/chosen_worst": krum, "ours-1-1/chosen_worst": krum}
    mean_cell = {"ours/chosen_worst": mean, "ours-1-1/chosen_worst": mean}
    clean = {"ft/chosen_worst": 0.7, "spare/worst": spare, "spare/average": 0.9, "ours/chosen_worst": 0.87}
    cells = {"a1-multi-krum": krum_cell, "a1-mean": mean_cell, "clean": clean}
    return made_up({f"{name}/{part}": cell for name, cell in cells.items() for part in ("all", "tuned")})


def test_composition_is_judged_against_both_controls():
    beds = composed(0.85), composed(0.75), composed([0.7, 0.8, 0.99])
    assert verdicts(claims.robust_and_unbiased, *beds) == [True, False, None]
    assert verdicts(claims.robust_and_unbiased_at_1, *beds) == [True, False, None]
    spares = [composed(0.85, spare=value) for value in (0.8, 0.9, [0.6, 0.75, 0.85])]
    assert verdicts(claims.spare_is_between, *spares) == [True, False, None]


def gaussian(**changed: float | Sequence[float]) -> Results:
    """A simulation in which both terms together are best in every respect."""
    cells: dict[str, dict[str, float | Sequence[float]]] = {
        f"shared/{case}": {"real": 2.0, "spurious": end, "real_pull": 0.4, "spurious_pull": 0.2, "real_noise": 0.1}
        for case, end in (("a", 0.05), ("b", 0.8))
    }
    for shared in cells.values():
        shared["spurious_noise"] = 0.3
    alone = {"0-0": 1.4, "0.1-0": 1.2, "1-0": 0.5, "10-0": 0.1, "0-0.01": 1.3, "0-0.1": 0.6, "0-1": 0.2}
    both = {"1-0.1": 0.07, "10-0.1": 0.05, "1-1": 0.04}
    for name, end in {**alone, **both}.items():
        wobble = 0.05 if name in alone else 0.005
        gap = 0.3 if name in alone else 0.01
        cells[f"personal/{name}"] = {"spurious": end, "wobble": wobble, "disparity": gap}
    for where, value in changed.items():
        cell, metric = where.rsplit("/", 1)
        cells[cell][metric] = value
    return made_up(cells)


@pytest.mark.parametrize(
    ("check", "against", "undecided"),
    [
        (claims.shared_ignores, {"shared/a/spurious": 0.2}, None),
        (
            claims.spurious_gradients_are_noisy,
            {"shared/b/spurious_noise": 0.05},
            {"shared/a/spurious_pull": [0.1, 0.4, 0.6]},
        ),
        (claims.less_with_either_term, {"personal/1-0/spurious": 1.3}, {"personal/1-0/spurious": [0.2, 0.7, 1.4]}),
        (claims.least_spurious, {"personal/1-1/spurious": 0.3}, {"personal/1-1/spurious": [0.1, 0.15, 0.3]}),
        (claims.calmer_than_weights, {"personal/10-0.1/wobble": 0.06}, {"personal/10-0.1/wobble": [0.0, 0.04, 0.07]}),
        (claims.around_zero, {"personal/10-0.1/spurious": 0.09}, None),
        (claims.calmest_of_all, {"personal/1-1/wobble": 0.06}, {"personal/1-1/wobble": [0.0, 0.04, 0.07]}),
    ],
)
def test_the_gaussian_simulation_can_hold_fail_and_be_undecided(check, against, undecided):
    assert verdicts(check, gaussian(), gaussian(**against)) == [True, False]
    if undecided is not None:
        assert verdicts(check, gaussian(**undecided)) == [None]


@pytest.mark.parametrize(
    ("most", "expected"), [(0.02, [True, True]), (0.2, [False, False]), ([0.0, 0.03, 0.2], [None, None])]
)
def test_diversity_is_judged_step_by_step_and_at_its_ends(most, expected):
    gaps = {"0.02": 0.12, "0.025": 0.1, "0.033": 0.08, "0.05": 0.06, "0.1": most}
    bed = made_up({"mnist-small/all": {f"{share}/chosen_disparity": gap for share, gap in gaps.items()}})
    assert [claim.check(bed).holds for claim in shortcuts_more.FIGURE2.claims] == expected


def test_keeping_the_benefit_can_hold_and_fail():
    good = table(ours__chosen_average=0.93, ft__chosen_average=0.85)
    assert verdicts(claims.keeps_the_benefit, made_up(good), made_up(table(ours__chosen_average=0.85))) == [True, False]
