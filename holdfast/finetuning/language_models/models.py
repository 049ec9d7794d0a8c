"""Causal language models: from the hub, a folder or a GGUF file, with LoRA, or small ones made on the spot.

Code that comes with a model is never run, and weights are read from safetensors or GGUF only, which can't hold any.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import nn

from holdfast.errors import ConfigError, DataError, MissingDependencyError
from holdfast.models.networks.pretrained import is_offline
from holdfast.streams import derive_seed

_NEEDS = "language models need transformers; install it with `pip install 'holdfast[llm]'`"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A model and its tokenizer.

    Attributes:
        model: a causal language model of transformers.
        tokenizer: the one it was trained with.
    """

    model: nn.Module
    tokenizer: Any

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(part.numel() for part in self.model.parameters() if part.requires_grad)

    @property
    def positions(self) -> int | None:
        """Tokens of an example at most, where each place has a learned vector (GPT-2, OPT); None for any number."""
        tables = (
            name.rpartition(".")[2] for name, part in self.model.named_modules() if isinstance(part, nn.Embedding)
        )
        learned = any(name == "wpe" or "position" in name for name in tables)
        return int(cast(Any, self.model).config.max_position_embeddings) if learned else None

    @property
    def fingerprint(self) -> str:
        """A hash of all weights as they are now, so that what a model gave is never mistaken for another's."""
        digest = hashlib.blake2b(digest_size=16)
        for name, part in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


def load_language_model(name: str, *, four_bit: bool = False) -> LanguageModel:
    """A pretrained model in float32, with its tokenizer.

    Args:
        name: a name on the Hugging Face hub, a local folder, or a ``.gguf`` file.
        four_bit: keep the weights of linear layers in four bits (NF4), which can't be learned: for `with_lora` (QLoRA).

    Raises:
        ConfigError: if a ``.gguf`` file, which has a quantisation of its own, is to be kept in four bits.
        MissingDependencyError: if transformers, `gguf` for such a file, or bitsandbytes for four bits isn't installed.
        DataError: if there is no such model, or no network to fetch it.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(_NEEDS) from error
    place, options = name, dict[str, Any]()
    if four_bit and name.endswith(".gguf"):
        raise ConfigError(f"{name} is quantised in its own way and read as float32; leave out --four-bit")
    if name.endswith(".gguf"):
        if not Path(name).is_file():
            raise DataError(f"there is no file {name}; give a .gguf file, a local folder, or a name on the hub")
        place, options = str(Path(name).parent), {"gguf_file": Path(name).name}
    kept = {"quantization_config": _four_bits()} if four_bit else {}
    try:
        local = {"local_files_only": is_offline(place)}  # or the library would try the hub for a minute
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **local, **options)
        model = AutoModelForCausalLM.from_pretrained(
            place,
            trust_remote_code=False,
            use_safetensors=None if options else True,
            dtype=torch.float32,
            **kept,
            **local,
            **options,
        )
    except ImportError as error:
        raise MissingDependencyError(f"{name!r} can't be read without another package: {error}") from error
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"the language model {name!r} can't be loaded ({reason}); give a name on the hub, a local folder with "
            "config.json, tokenizer and safetensors, or a .gguf file. Without a network, `--proxy scratch` makes a "
            "small proxy on the spot"
        ) from error
    _stay_as_packed(model)
    return LanguageModel(model, tokenizer)


def _four_bits() -> Any:
    """How weights are kept in four bits.

    Raises:
        MissingDependencyError: if bitsandbytes isn't installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise MissingDependencyError("weights in four bits need bitsandbytes; `pip install bitsandbytes`")
    from transformers import BitsAndBytesConfig  # noqa: PLC0415 - an optional package

    halves = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    computed = torch.bfloat16 if halves else torch.float32
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=computed)


def _stay_as_packed(model: nn.Module) -> None:
    """On a CPU bitsandbytes 0.50 packs four-bit weights anew for evaluation, and training can't go on with those."""
    for part in model.modules():
        if "support_avx512bf16_for_cpu" in vars(part):
            vars(part)["support_avx512bf16_for_cpu"] = False


def with_lora(language: LanguageModel, *, rank: int = 16, seed: int = 0) -> LanguageModel:
    """The same model with low-rank adapters on all linear layers, which alone are learned.

    Raises:
        MissingDependencyError: if peft isn't installed.
    """
    try:
        from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError("LoRA needs peft; install it with `pip install 'holdfast[llm]'`") from error
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "adapters"))
        return LanguageModel(get_peft_model(language.model, config), language.tokenizer)


def small_language_model(
    texts: Iterable[str],
    *,
    layers: int = 4,
    width: int = 128,
    heads: int = 4,
    vocabulary: int = 2048,
    longest: int = 512,
    seed: int = 0,
) -> LanguageModel:
    """A GPT-NeoX, the architecture of Pythia, with random weights and a tokenizer learned from texts.

    Args:
        texts: what the tokenizer (byte-level BPE) is learned from.
        layers: transformer blocks.
        width: of the hidden states.
        heads: of the attention.
        vocabulary: tokens at most.
        longest: tokens of an example at most.
        seed: names the stream of the weights.

    Raises:
        MissingDependencyError: if transformers isn't installed.
    """
    tokenizer = learned_tokenizer(texts, vocabulary)
    return LanguageModel(
        gpt_neox(len(tokenizer), layers=layers, width=width, heads=heads, longest=longest, seed=seed), tokenizer
    )


def gpt_neox(
    vocabulary: int, *, layers: int, width: int, heads: int, longest: int = 512, seed: int = 0, end: int = 0
) -> nn.Module:
    """A GPT-NeoX with random weights, without dropout."""
    try:
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingDependencyError(_NEEDS) from error
    config = GPTNeoXConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=longest,
        bos_token_id=end,
        eos_token_id=end,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "weights", vocabulary, layers, width))
        model: nn.Module = GPTNeoXForCausalLM(config)
    return model


def learned_tokenizer(texts: Iterable[str], vocabulary: int = 2048) -> Any:
    """A byte-level BPE tokenizer learned from texts; every digit is a token of its own."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415 - optional
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependencyError(_NEEDS) from error
    end = "<|endoftext|>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end)
