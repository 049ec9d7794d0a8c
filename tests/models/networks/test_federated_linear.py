import pytest
import torch

from holdfast.errors import ConfigError
from holdfast.models import MODELS, BagOfWords, LinearSVM, build


@pytest.mark.parametrize(("name", "shape"), [("svm", (3,)), ("softmax", (3,)), ("bag-of-words", (3,))])
def test_convex_models_start_at_zero(name, shape) -> None:
    assert not any(parameter.any() for parameter in build(name, shape, 2, seed=4).parameters())


def test_the_svm_has_one_output_and_names_its_penalty() -> None:
    model = LinearSVM((100,), 2)
    assert model(torch.randn(7, 100)).shape == (7, 1)
    assert model.weight_penalty == 0.01
    with pytest.raises(ConfigError, match="two classes apart and was asked for 3"):
        MODELS["svm"]((100,), 3)


def test_a_bag_of_words_is_the_mean_of_one_hot_words() -> None:
    words = torch.tensor([[0, 3, 3, 12], [11, 2, -1, -1], [-1, -1, -1, -1]], dtype=torch.int16)
    model = BagOfWords((4,), 5, vocabulary=10)
    expected = torch.zeros(3, 10)
    for row, text in enumerate(words.tolist()):
        texts = [word for word in text if word >= 0]
        for word in texts:
            if word < 10:
                expected[row, word] += 1 / len(texts)
    torch.testing.assert_close(model.features(words), expected)
    weight = torch.randn(5, 10)
    model.head.weight.data.copy_(weight)
    torch.testing.assert_close(model(words), expected @ weight.T)


def test_bags_of_words_run_for_stacked_clients() -> None:
    model = BagOfWords((4,), 2, vocabulary=6)
    weights, words = torch.randn(3, 2, 6), torch.randint(-1, 8, (3, 5, 4), generator=torch.Generator().manual_seed(0))

    def outputs(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, {"head.weight": weight}, (x,))

    stacked = torch.func.vmap(outputs)(weights, words)
    for client in range(3):
        torch.testing.assert_close(stacked[client], outputs(weights[client], words[client]))
