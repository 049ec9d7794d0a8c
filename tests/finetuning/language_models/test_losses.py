"""A1: losses of examples are those of each example alone, whatever stands beside it."""

import numpy as np
import pytest
import torch
from torch import nn

from holdfast.finetuning import example_losses, hidden_states, response_scores
from holdfast.finetuning.language_models.losses import response_logits, sweep_examples, trajectory_point
from holdfast.finetuning.language_models.tokens import TokenBatch
from holdfast.training.ranks import Ranks
from tests.finetuning.small import instructions, language, tokens_of, weights_of

DATA = instructions()


def by_hand(model: nn.Module, ids: list[int], prompt: int) -> float:
    """Mean of -log p over the response's tokens, one token at a time."""
    losses = []
    for place in range(prompt, len(ids)):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[:place]])).logits[0, -1]
        losses.append(-float(logits.log_softmax(0)[ids[place]]))
    return sum(losses) / len(losses)


def test_in_a_batch_as_alone_as_by_hand() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    with torch.no_grad():
        together = example_losses(model.model, tokens.batch(range(len(tokens))))
        alone = torch.cat([example_losses(model.model, tokens.batch([place])) for place in range(len(tokens))])
    expected = [
        by_hand(model.model, tokens[place]["input_ids"].tolist(), int(tokens.prompt_lengths[place]))
        for place in range(len(tokens))
    ]
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(together, torch.tensor(expected), rtol=0, atol=1e-5)


def test_padding_changes_nothing() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    batch = tokens.batch([3, 8])
    wide = [
        nn.functional.pad(part, (0, 9), value=fill)
        for part, fill in zip((batch.input_ids, batch.attention_mask, batch.labels), (7, 0, -100), strict=True)
    ]
    with torch.no_grad():
        plain = example_losses(model.model, batch)
        padded = example_losses(model.model, TokenBatch(*wide))
        summed = example_losses(model.model, batch, "sum")
    torch.testing.assert_close(plain, padded, rtol=0, atol=1e-5)
    counted = (batch.labels != -100).sum(1)
    torch.testing.assert_close(summed, plain * counted)


def test_what_is_predicted_of_prompts_changes_nothing() -> None:
    """A1, in a batch of prompts of several lengths: whatever a model says of prompt tokens, losses are the same."""
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    places = [3, 4, 8]
    assert len(set(tokens.prompt_lengths[places])) == 3
    batch = tokens.batch(places)

    class Confused(nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> object:
            out = model.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)
            for row, prompt in enumerate(tokens.prompt_lengths[places]):
                out.logits[row, : prompt - 1] = torch.randn_like(out.logits[row, : prompt - 1])
            return out

    with torch.no_grad():
        torch.testing.assert_close(example_losses(Confused(), batch), example_losses(model.model, batch))


def test_the_prompt_of_one_example_is_nothing_to_another() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    batch = tokens.batch([3, 8])
    other = batch.input_ids.clone()
    other[0, : tokens.prompt_lengths[3]] += 1
    with torch.no_grad():
        before = example_losses(model.model, batch)
        after = example_losses(model.model, TokenBatch(other, batch.attention_mask, batch.labels))
    assert before[1] == after[1]
    assert before[0] != after[0]


def test_models_that_compute_all_logits_give_the_same() -> None:
    model = language(DATA)
    batch = tokens_of(DATA, model).batch([0, 5, 6])

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model.model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, use_cache: bool) -> object:
            return self.inner(input_ids=input_ids, attention_mask=attention_mask, use_cache=use_cache)

    with torch.no_grad():
        few, labels = response_logits(model.model, batch)
        all_of_them, same = response_logits(Plain(), batch)
    assert torch.equal(labels, same)
    torch.testing.assert_close(few, all_of_them)
    assert few.shape[1] < batch.input_ids.shape[1] - 1


@pytest.mark.parametrize("most_tokens", [1, 60, 10_000])
def test_a_point_is_the_loss_of_every_example_in_its_place(most_tokens: int) -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    seen: list[tuple[int, int]] = []
    point = trajectory_point(
        model.model, tokens, most_tokens=most_tokens, progress=lambda done, of: seen.append((done, of))
    )
    expected = [
        by_hand(model.model, tokens[place]["input_ids"].tolist(), int(tokens.prompt_lengths[place]))
        for place in range(len(tokens))
    ]
    np.testing.assert_allclose(point, expected, atol=1e-5)
    assert seen[-1] == (24, 24)


def test_a_sweep_leaves_the_model_and_random_numbers_as_they_were() -> None:
    model = language(DATA)
    model.model.train()
    model.model.gpt_neox.layers[0].eval()  # type: ignore[union-attr,index,operator]
    before, state = weights_of(model.model), torch.random.get_rng_state()
    trajectory_point(model.model, tokens_of(DATA, model))
    assert np.array_equal(before, weights_of(model.model))
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.model.training
    assert not model.model.gpt_neox.layers[0].training  # type: ignore[union-attr,index,operator]


def test_shares_of_several_processes_make_the_whole() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    whole = trajectory_point(model.model, tokens, most_tokens=60)
    parts = [Part(index, 3) for index in range(3)]
    summed = sum(trajectory_point(model.model, tokens, most_tokens=60, processes=part) for part in parts)
    assert np.array_equal(whole, summed)


class Part(Ranks):
    """One of several processes, whose results are summed by the test."""

    def total(self, values: torch.Tensor) -> torch.Tensor:
        return values


def test_scores_agree_with_losses_and_probabilities() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    scores = response_scores(model.model, tokens)
    np.testing.assert_allclose(scores.loss, trajectory_point(model.model, tokens), atol=1e-6)
    place = 9
    with torch.no_grad():
        logits, labels = response_logits(model.model, tokens.batch([place]))
    probabilities = logits[0].softmax(1)
    gold = probabilities[torch.arange(labels.shape[1]), labels[0]]
    assert scores.confidence[place] == pytest.approx(float(gold.mean()), rel=1e-5)
    assert scores.certainty[place] == pytest.approx(float(probabilities.amax(1).mean()), rel=1e-5)
    assert scores.geometric_confidence[place] == pytest.approx(float(gold.log().mean().exp()), rel=1e-5)


def test_hidden_states_are_averaged_over_own_tokens_only() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    for layer, place in (("first", 1), ("last", -1)):
        states = hidden_states(model.model, tokens, layer)  # type: ignore[arg-type]
        with torch.no_grad():
            alone = model.model(input_ids=tokens[4]["input_ids"][None], output_hidden_states=True)
        np.testing.assert_allclose(states[4], alone.hidden_states[place][0].mean(0), atol=1e-5)


def test_a_sweep_may_compute_several_numbers() -> None:
    model = language(DATA)
    tokens = tokens_of(DATA, model)
    both = sweep_examples(
        model.model, tokens, lambda _, batch: torch.stack([batch.attention_mask.sum(1)] * 2, 1), width=2
    )
    assert both[:, 0].tolist() == tokens.lengths.tolist()
