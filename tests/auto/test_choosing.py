"""auto uses what the user gave and nothing else, leaves plain training for a clear gain only, and says its cost."""

import dataclasses

import pytest
import torch

from holdfast.auto import Auto, Choice, Try, choose, kept_or_chosen, knowledge_of
from holdfast.auto.candidates import CANDIDATES
from holdfast.auto.choosing import best_of, check_names, halved, level_of_each, reasons
from holdfast.data import Examples, Splits
from holdfast.errors import CheckpointError, ConfigError
from holdfast.methods import METHODS, build_method
from holdfast.training import GroupReport, Run, Training
from tests.training.toy import toy_examples, toy_model, toy_splits

SHORT = Training(epochs=2, batch_size=16, learning_rate=0.05, threads=1)


def without_attributes(examples):
    return Examples.of(examples.inputs, examples.labels, ids=examples.ids)


def with_known(known):
    whole = toy_splits()
    train = whole.train if known == "train" else without_attributes(whole.train)
    validation = without_attributes(whole.validation) if known == "none" else whole.validation
    return Splits("toy", train, validation, whole.test)


@pytest.mark.parametrize("known", CANDIDATES)
def test_what_is_known_is_what_training_and_validation_say(known):
    assert knowledge_of(with_known(known)) == known


def test_groups_that_are_the_classes_by_another_name_are_no_groups():
    whole = toy_splits()
    validation = whole.validation.with_groups(whole.validation.labels)
    assert knowledge_of(dataclasses.replace(whole, validation=validation)) == "none"


@pytest.mark.parametrize("known", CANDIDATES)
def test_no_candidate_needs_groups_that_are_not_known(known):
    check_names(CANDIDATES[known], known, "auto", "--auto.tries")
    for name in CANDIDATES[known]:
        assert METHODS[name].needs_groups_of in {"train": (None, "train"), "validation": (None, "validation")}.get(
            known, (None,)
        )


def test_the_test_set_is_not_looked_at():
    whole, auto = with_known("validation"), Auto(tries=("erm", "dfr-val"), effort=2.0)
    test = whole.test
    other = Splits("toy", whole.train, whole.validation, test.subset(torch.tensor([0])))
    made = [choose(toy_model, splits, SHORT, auto) for splits in (whole, other)]
    numbers = [[dataclasses.replace(one, seconds=0.0) for one in choice.tries] for choice in made]
    assert numbers[0] == numbers[1]
    assert made[0].method == made[1].method


def test_a_method_that_learns_from_validation_is_never_judged_on_what_it_learned_from(monkeypatch):
    from holdfast.auto import choosing

    parts = []
    real = choosing.fit

    def watched(model, splits, *rest, **more):
        parts.append((set(splits.validation.ids.tolist()), set(splits.test.ids.tolist())))
        return real(model, splits, *rest, **more)

    monkeypatch.setattr(choosing, "fit", watched)
    splits = with_known("validation")
    choose(toy_model, splits, SHORT, Auto(tries=("erm", "dfr-val"), effort=2.0))
    (_, _), *folds = parts
    assert len(folds) == 2
    assert all(not own & judged for own, judged in folds)
    assert folds[0][1] | folds[1][1] == set(splits.validation.ids.tolist())


def test_a_gain_that_could_be_luck_or_a_failed_health_leaves_plain_training():
    plain = Try("erm", 0.5)
    lucky = Try("jtt", 0.6, gain=0.1, low=-0.01)
    sick = Try("spare", 0.9, gain=0.4, low=0.3, health="failed")
    refused = Try("epic", low=1.0, gain=1.0, refused="it can't")
    assert best_of([plain, lucky, sick, refused]) is plain
    clear = Try("lff", 0.55, gain=0.05, low=0.01, health="doubtful")
    assert best_of([plain, lucky, sick, refused, clear]) is clear


def test_where_only_classes_are_known_their_mean_must_not_fall():
    plain = Try("erm", 0.5, mean=0.8)
    moved = Try("spare", 0.6, gain=0.1, low=0.05, mean=0.75)
    assert best_of([plain, moved], "none") is plain
    assert best_of([plain, moved], "validation") is moved
    assert "the mean over classes falls by 5.0" in reasons([plain, moved], plain, "none", 0.8)


def test_the_best_of_many_that_change_nothing_is_seldom_above_zero():
    """Five methods that are right about as many examples as plain training, by chance about others."""
    stream = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 2
    examples = Examples.of(torch.zeros(400, 1), labels)

    def report():
        return GroupReport.of(torch.where(torch.rand(400, generator=stream) < 0.2, 1 - labels, labels), examples)

    def lucky(level):
        return any(report().compare(plain, level=level, draws=400).worst.low > 0 for _ in range(5))

    wins = {"alone": 0, "at once": 0}
    for _ in range(60):
        plain = report()
        wins["alone"] += lucky(0.8)
        wins["at once"] += lucky(level_of_each(0.8, 5))
    assert wins["at once"] <= 3
    assert wins["alone"] >= 9


def test_the_choice_is_the_clear_winner_where_a_shortcut_is_strong():
    train = toy_examples(400, 5)
    splits = Splits("toy", train, toy_examples(200, 6), toy_examples(40, 7))
    lop_sided = torch.cat([torch.where(train.labels == train.attributes)[0], torch.arange(20)]).unique()
    splits = dataclasses.replace(splits, train=train.subset(lop_sided))
    settings = dataclasses.replace(SHORT, epochs=4)
    choice = choose(toy_model, splits, settings, Auto(tries=("erm", "group-balanced"), effort=2.0))
    assert choice.method == "group-balanced"
    assert "group-balanced has the largest gain" in choice.why


def test_a_try_that_repeats_examples_beyond_its_share_is_given_up():
    many = lambda name: build_method(name, {"jtt": {"lambda_up": 1000, "infer_epoch": 1}} if name == "jtt" else None)  # noqa: E731
    choice = choose(toy_model, with_known("none"), SHORT, Auto(tries=("erm", "jtt"), effort=2.0), build=many)
    assert "times as long" in choice.tries[1].refused
    assert choice.method == "erm"


def test_a_method_whose_first_stage_is_longer_than_a_try_is_refused_with_what_to_raise():
    choice = choose(toy_model, with_known("none"), SHORT, Auto(tries=("erm", "spare"), effort=1.0))
    assert "--auto.effort" in choice.tries[1].refused


def test_the_tries_cost_no_more_epochs_than_the_effort_allows():
    settings = dataclasses.replace(SHORT, epochs=6)
    choice = choose(toy_model, with_known("none"), settings, Auto(tries=("erm", "cvar"), effort=1.0))
    assert choice.epochs * len(choice.tries) == 6
    assert choice.seconds >= sum(one.seconds for one in choice.tries) > 0


@pytest.mark.parametrize(
    ("names", "known"),
    [(("group-dro",), "validation"), (("dfr-val",), "none"), (("dfr-train",), "none"), (("no-such",), "train")],
)
def test_methods_that_need_what_is_not_known_are_refused(names, known):
    with pytest.raises(ConfigError):
        check_names(names, known, "auto", "--auto.tries")


@pytest.mark.parametrize("bad", [{"effort": 0.0}, {"effort": float("nan")}, {"level": 1.0}, {"tries": ("jtt",)}])
def test_options_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError):
        Auto(**bad)


def test_halves_share_every_group_evenly():
    examples = toy_examples(60)
    first, second = halved(examples, 0)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(60))
    counts = [torch.bincount(examples.groups[half], minlength=4) for half in (first, second)]
    assert int((counts[0] - counts[1]).abs().max()) <= 1


def test_a_run_that_is_continued_keeps_its_choice(tmp_path):
    run = Run.create(tmp_path / "run", {"method": "auto"})
    made = Choice("jtt", "none", "because", (Try("erm", 0.5), Try("jtt", 0.6, gain=0.1, low=0.05)), 3, 1.5)
    assert kept_or_chosen(run, lambda: made) == made
    assert kept_or_chosen(run, lambda: pytest.fail("chosen again")) == made
    assert kept_or_chosen(None, lambda: made) == made


@pytest.mark.parametrize("damage", ['{"method": 1}', "[]", "not json"])
def test_a_damaged_choice_is_named(tmp_path, damage):
    run = Run.create(tmp_path / "run", {"method": "auto"})
    (run.path / "choice.json").write_text(damage)
    with pytest.raises(CheckpointError, match="run"):
        kept_or_chosen(run, lambda: pytest.fail("chosen"))
