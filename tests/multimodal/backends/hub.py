"""A CLIP in the hub's form with random weights: two layers of 16, images of 32, a tokenizer of single letters."""

import json

import torch


def letters():
    """A vocabulary for CLIP's tokenizer: every letter inside a word and at its end, then start and end of a text."""
    plain = [chr(code) for code in range(33, 127)]
    return {
        token: number
        for number, token in enumerate(
            [*plain, *(letter + "</w>" for letter in plain), "<|startoftext|>", "<|endoftext|>"]
        )
    }


def save_tokenizer(folder, length=16):
    import transformers

    (folder / "vocab.json").write_text(json.dumps(letters()))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizer(vocab=letters(), merges=[], model_max_length=length).save_pretrained(folder)


def clip_config(**changes):
    import transformers

    end = letters()["<|endoftext|>"]
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": end + 1, "max_position_embeddings": 16, "bos_token_id": end - 1, "eos_token_id": end}
    vision = {**sizes, "image_size": 32, "patch_size": 8}
    return transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12, **changes)


def save_clip(folder, seed=0, dtype=torch.float32):
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.CLIPModel(clip_config()).to(dtype)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return model.eval()
