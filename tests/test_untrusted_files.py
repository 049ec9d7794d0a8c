"""Files that come from others: no reader runs what is in them, and no line of the package could."""

import ast
import hashlib
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import holdfast
from holdfast.data.clients.files import read_folder
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.texts import load_tokenizer
from holdfast.errors import HoldfastError
from holdfast.files import read_mapping
from holdfast.finetuning.language_models.models import load_language_model
from holdfast.models.networks.efficientnet_lite import load_efficientnet_lite0
from holdfast.models.starting_weights import load_weights
from holdfast.poisoning.attacks.crafting.poisoned import PoisonedSet
from holdfast.poisoning.attacks.public_benchmark.pickled_data import read_pickled
from holdfast.spurious.group_inference.partition import ClusterPartition
from holdfast.training.run import Run
from holdfast.training.state import load_state
from tests.poisoning.attacks.public_benchmark.hostile import Evil, tensor_with, torch_file

PACKAGE = Path(holdfast.__file__).parent


def written(file, content):
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    return file


def torch_state(folder, canary):
    return written(folder / "weights.pt", torch_file({"weight": torch.zeros(2, 2), "evil": Evil(canary)}))


def old_torch_state(folder, canary):
    return written(folder / "weights.pth", torch_file([Evil(canary)], _use_new_zipfile_serialization=False))


def plain_pickle(folder, canary):
    return written(folder / "state.safetensors", pickle.dumps({"weight": Evil(canary)}))


def tensor_in_a_pickle(folder, canary):
    """A pickle as torch's tensors make it, in which the storage's own torch file is hostile."""
    storage = torch_file([Evil(canary)], _use_new_zipfile_serialization=False)
    return written(folder / "target.pickle", tensor_with(storage))


def objects_in_an_npz(folder, canary):
    stream = io.BytesIO()
    np.savez(stream, inputs=np.array([Evil(canary), 1], dtype=object), labels=np.zeros(2))
    return written(folder / "data.npz", stream.getvalue())


def objects_of_clients(folder, canary):
    array = np.array([Evil(canary), 1], dtype=object)
    header = {"format": "holdfast-clients", "version": 1, "tensors": {"x": {"shape": [2], "dtype": array.dtype.str}}}
    stream = io.BytesIO()
    np.save(stream, array)
    written(folder / "header.json", json.dumps(header).encode())
    return written(folder / "x.npy", stream.getvalue()).parent


def objects_of_a_partition(folder, canary):
    stream = io.BytesIO()
    names = ("ids", "labels", "groups", "clusters", "margins", "confidence", "silhouettes")
    np.savez(stream, **dict.fromkeys(names, np.array([Evil(canary), 1], dtype=object)))
    digest = hashlib.blake2b(stream.getvalue(), digest_size=16).hexdigest()
    written(folder / "groups.npz", stream.getvalue())
    written(folder / "groups.json", json.dumps({"classes": [], "about": {}, "npz": digest}).encode())
    return folder / "groups"


def yaml_tag(folder, canary):
    return written(folder / "config.yaml", f"method: !!python/object/apply:os.mkdir [{canary}]\n".encode())


def run_folder(folder, canary):
    return yaml_tag(folder, canary).parent


def code_of_the_hub(folder, canary):
    """A model and a tokenizer that bring code of their own."""
    written(folder / "own.py", f"import os\nos.mkdir({str(canary)!r})\nclass Own: ...\n".encode())
    own = {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own", "AutoTokenizer": ["own.Own", None]}
    written(folder / "config.json", json.dumps({"model_type": "own", "auto_map": own}).encode())
    tokenizer = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    written(folder / "tokenizer_config.json", json.dumps(tokenizer).encode())
    return folder


READERS = {
    "weights of a network": (lambda path: load_weights(nn.Linear(2, 2), path), torch_state),
    "weights of a network, old format": (lambda path: load_weights(nn.Linear(2, 2), path), old_torch_state),
    "weights of a network, safetensors": (lambda path: load_weights(nn.Linear(2, 2), path), plain_pickle),
    "weights of EfficientNet": (load_efficientnet_lite0, torch_state),
    "weights of EfficientNet, old format": (load_efficientnet_lite0, old_torch_state),
    "checkpoint": (load_state, plain_pickle),
    "poisoned set": (PoisonedSet.load, plain_pickle),
    "poison package": (read_pickled, plain_pickle),
    "tensor of a poison package": (read_pickled, tensor_in_a_pickle),
    "arrays": (read_npz, objects_in_an_npz),
    "clients": (read_folder, objects_of_clients),
    "partition": (ClusterPartition.load, objects_of_a_partition),
    "configuration": (read_mapping, yaml_tag),
    "configuration of a run": (lambda path: Run.open(path).config, run_folder),
    "tokenizer": (lambda path: load_tokenizer(str(path)), code_of_the_hub),
    "language model": (lambda path: load_language_model(str(path)), code_of_the_hub),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_is_refused_with_a_sentence_and_runs_nothing(tmp_path, reader):
    canary = tmp_path / "canary"
    read, make = READERS[reader]
    place = make(tmp_path / "given", canary)
    with pytest.raises(HoldfastError) as caught:
        read(place)
    assert not canary.exists()
    assert len(str(caught.value).splitlines()) == 1


# ------------------------------------------------------------------------------------------------------ the package

#: Calls that run what they are given, whatever their options.
RUNS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen"),
    *("pickle.load", "pickle.loads", "_pickle.loads", "dill.load", "dill.loads", "cloudpickle.loads", "joblib.load"),
    *("marshal.load", "marshal.loads", "shelve.open", "pd.read_pickle", "pandas.read_pickle"),
    *("torch.hub.load", "torch.jit.load", "torch.package.PackageImporter", "torch.serialization.add_safe_globals"),
    *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.unsafe_load_all"),
}
#: Calls that don't if they say so.
SAFE = {
    "load": {"torch": ("weights_only", True), "np": ("allow_pickle", False), "numpy": ("allow_pickle", False)},
    "from_pretrained": ("trust_remote_code", False),
}
#: Modules that may make an unpickler: it looks no name up.
UNPICKLERS = {"poisoning/attacks/public_benchmark/described.py"}


#: Modules that open a pickle whose SHA-256 they know; their tests change a byte of it.
KNOWN_BYTES = {"data/sets/federated/seglearn.py": ["np.load", "np.load"]}


def unsafe(source, place=""):
    """The calls in a module that could run what a file says, as text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "_pickle", "marshal", "dill", "joblib"):
            found.append(f"from {node.module}")
        if isinstance(node, ast.Attribute) and node.attr == "Unpickler" and place not in UNPICKLERS:
            found.append(ast.unparse(node))
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        options = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
        owner, _, last = name.rpartition(".")
        needed = SAFE.get(last)
        needed = needed.get(owner) if isinstance(needed, dict) else needed
        if name in RUNS or (needed is not None and options.get(needed[0]) is not needed[1]):
            found.append(name)
        if options.get("allow_pickle") or options.get("trust_remote_code") or options.get("weights_only") is False:
            found.append(name)
    return found


@pytest.mark.parametrize(
    "line",
    [
        *("torch.load(f)", "torch.load(f, weights_only=False)", "torch.load(f, weights_only=safe)"),
        *("np.load(f)", "np.load(f, allow_pickle=True)", "np.lib.format.open_memmap(f, allow_pickle=True)"),
        *("yaml.load(f, yaml.Loader)", "pickle.load(f)", "pickle.Unpickler(f).load()", "from pickle import loads"),
        *("eval(x)", "exec(x)", "AutoModel.from_pretrained(n)", "load_dataset(n, trust_remote_code=True)"),
    ],
)
def test_what_could_run_a_file_is_found(line):
    assert unsafe(line)


def test_nothing_in_the_package_could_run_what_a_file_says():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        if calls := unsafe(file.read_text(), place):
            found[place] = calls
    assert found == KNOWN_BYTES
