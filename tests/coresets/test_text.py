"""CREST on sentence pairs with a tiny RoBERTa: the path that SNLI and the published weights take."""

import random

import pytest
import torch

from holdfast.coresets import Crest
from holdfast.data import load
from holdfast.errors import ConfigError
from holdfast.models import build, find_head
from holdfast.training import Curator, Run, Training, fit
from tests.data.trees import write_pairs, write_tokenizer

transformers = pytest.importorskip("transformers")

WORDS = ("a", "man", "dog", "eats", "sleeps", "no")


def pairs(n, seed):
    """Does the second sentence say the same, the contrary (no), or something about somebody else?"""
    draw = random.Random(seed)
    rows = []
    for _ in range(n):
        who, does = draw.choice(("man", "dog")), draw.choice(("eats", "sleeps"))
        other = {"man": "dog", "dog": "man"}[who]
        label = draw.choice(("entailment", "neutral", "contradiction"))
        said = {"entailment": f"a {who}", "contradiction": f"no {who}", "neutral": f"a {other}"}[label]
        rows.append((label, f"a {who} {does}", f"{said} {does}"))
    return rows


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snli")
    write_tokenizer(folder / "tokenizer", WORDS)
    write_pairs(folder, {"train": pairs(300, 0), "dev": pairs(60, 1), "test": pairs(60, 2)})
    sizes = {
        "vocab_size": 12,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 20,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    transformers.RobertaForMaskedLM(transformers.RobertaConfig(**sizes)).save_pretrained(folder / "weights")
    return folder


def test_full_gradients_of_texts_are_refused_by_a_sentence(root):
    splits = load("snli", root, tokenizer=str(root / "tokenizer"), max_tokens=18)
    model = build("roberta-base", splits.train.input_shape, 3, weights=root / "weights")
    with pytest.raises(ConfigError, match="for texts take 'feature' or 'last_layer'"):
        Curator(splits.train, Crest(proxy="full"), batch_size=8).start(model)


def test_roberta_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = build("roberta-base", (128,), 3)
    assert sum(parameter.numel() for parameter in model.parameters()) == 124_647_939
    assert find_head(model)[0] == "classifier.out_proj"


@pytest.mark.parametrize("curvature_of", ["head", "all"])
def test_crest_fine_tunes_a_sequence_classifier(root, tmp_path, curvature_of):
    splits = load("snli", root, tokenizer=str(root / "tokenizer"), max_tokens=18)
    model = build("roberta-base", splits.train.input_shape, 3, weights=root / "weights")
    policy = Crest(algorithm="published", batch_size=16, subset=60, proxy="feature", curvature_of=curvature_of)
    settings = Training(epochs=6, epoch_size=160, learning_rate=3e-3, optimizer="adamw", select_by="accuracy")
    run = Run.create(tmp_path / "run", {})
    result = fit(model, splits, policy, settings, run=run)
    assert result.test.accuracy > 0.6
    assert len(policy.accounts.selections) >= 2
    head = sum(p.numel() for p in find_head(model)[1].parameters())
    anchor = policy.state_dict()["region"]["model"]["region"]["anchor"]
    assert (len(anchor) == head) == (curvature_of == "head")
