"""Pickles that would run code, and pickles that would fill the memory or never end."""

import io
import os
import pickle
import struct

import numpy as np
import torch

#: The instruction that pushes what is registered as number 240.
EXTENSION = b"\x82\xf0"


class Evil:
    """Makes the folder `place` when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (str(self.place),)


def text(value):
    """The instruction that pushes a text."""
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def name(module, attribute):
    """The instruction that pushes what a name stands for."""
    return f"c{module}\n{attribute}\n".encode()


def torch_file(value, **options):
    """A file of torch with `value` in it."""
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def running(place):
    """Pickles that make the folder `place` where `pickle.loads` reads them, by name."""
    path, module = text(str(place)), os.mkdir.__module__
    mkdir, argument = name(module, "mkdir"), path + b"\x85"
    code = text(f"__import__('os').mkdir({str(place)!r})") + b"\x85R."
    imported = name("builtins", "__import__") + text("os") + b"\x85R"
    stored = torch_file(Evil(place), _use_new_zipfile_serialization=False)
    zipped = torch_file({"weights": torch.zeros(2), "evil": Evil(place)})
    globals_of = "Image.close.__globals__"
    return {
        **{f"reduce in protocol {number}": pickle.dumps([Evil(place)], protocol=number) for number in range(6)},
        "reduce": mkdir + argument + b"R.",
        "inst": b"(" + path + f"i{module}\nmkdir\n.".encode(),
        "obj": b"(" + mkdir + path + b"o.",
        "newobj_ex": name("functools", "partial") + mkdir + path + b"\x86}\x92)R.",
        "build": name("types", "SimpleNamespace") + b")R}" + text("__setstate__") + mkdir + b"sb" + path + b"b.",
        "stored texts": text(module) + b"q\x00" + text("mkdir") + b"q\x01h\x00h\x01\x93" + argument + b"R.",
        "computed text": text(module)
        + (name("_codecs", "decode") + b"C\x05mkdir" + text("ascii") + b"\x86R\x93" + argument + b"R."),
        "attributes of an allowed name": b"\x80\x04" + name("PIL.Image", globals_of + ".get")
        + (text("os") + b"\x85R\x94" + name("builtins", "getattr") + b"h\x00" + text("mkdir"))
        + (b"\x86R" + argument + b"R."),
        "eval": name("builtins", "eval") + code,
        "exec": name("builtins", "exec") + code,
        "eval of Python 2": b"\x80\x02" + name("__builtin__", "eval") + code,
        "getattr": name("builtins", "getattr") + imported + text("mkdir") + b"\x86R" + argument + b"R.",
        "attrgetter": name("operator", "attrgetter") + text("mkdir") + b"\x85R"
        + (imported + b"\x85R" + argument + b"R."),
        "partial": name("functools", "partial") + mkdir + path + b"\x86R)R.",
        "state of a partial": name("functools", "partial") + name("builtins", "int") + b"\x85R("
        + (mkdir + argument + b"}Ntb)R."),
        "array of objects": pickle.dumps(np.array([Evil(place), 1], dtype=object)),
        "known extension": EXTENSION + argument + b"R.",
        "old torch file in a tensor": tensor_with(stored),
        "new torch file in a tensor": tensor_with(zipped),
        "torch file": name("torch.storage", "_load_from_bytes") + bytes_of(stored) + b"\x85R.",
        "pickle in a pickle": name("_pickle", "loads") + bytes_of(pickle.dumps(Evil(place))) + b"\x85R.",
    }  # fmt: skip


def bytes_of(content):
    """The instruction that pushes bytes."""
    return b"B" + struct.pack("<I", len(content)) + content


def tensor_with(content):
    """A tensor whose storage is `content`."""
    storage = name("torch.storage", "_load_from_bytes") + bytes_of(content) + b"\x85R"
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + b"K\x00K\x02\x85K\x01\x85\x89}tR."


def filling():
    """Pickles of at most a few megabytes that ask for very much memory or time, by name."""
    long, wide = struct.pack("<Q", 2**40), struct.pack("<I", 2**31 - 1)
    dtype = name("numpy", "dtype") + text("f8") + b"\x89\x88\x87R"
    array = name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R"
    huge = b"\x8a\x06" + (10**12).to_bytes(6, "little")
    shape = huge + b"\x85"
    doubled = b"]" + b"".join(b"q" + bytes([i]) + b"]h" + bytes([i]) + b"ah" + bytes([i]) + b"a" for i in range(60))
    tuples = b")q\x00" + b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60))
    plain = pickle.dumps(torch.arange(4.0), protocol=2)
    half = b"\x8a\x06" + (2**29).to_bytes(6, "little")
    storage = plain.index(b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00")
    return {
        "bytes": b"\x80\x04\x8e" + long + b"abc.",
        "short bytes": b"\x80\x04B" + wide + b"abc.",
        "bytearray": b"\x80\x05\x96" + long + b"abc.",
        "text": b"\x80\x04\x8d" + long + b"abc.",
        "whole number": b"\x80\x04\x8b" + wide + b"abc.",
        "digits": b"I" + b"9" * 2_000_000 + b"\n.",
        "frame": b"\x80\x04\x95" + long + b"].",
        "place": b"]r\xff\xff\xff\x7f.",
        "place in digits": b"]p999999999999\n.",
        "shape of an array": array + b"(K\x01" + shape + dtype + b"\x89C\x08abcdefghtb.",
        "shape of nothing": array + b"(K\x01" + huge + b"K\x00\x86" + dtype + b"\x89C\x00tb.",
        "shape of a buffer": name("numpy._core.numeric", "_frombuffer") + b"(C\x08abcdefgh" + dtype + shape
        + text("C") + b"tR.",
        "call of an array": name("numpy", "ndarray") + shape + b"\x85R.",
        "type of an array": array + b"(K\x01K\x01\x85" + name("numpy", "dtype") + text("(1000000000,)f8")
        + b"\x89\x88\x87R\x89C\x08abcdefghtb.",
        "size of an image": name("PIL.Image", "Image") + b")\x81](}" + text("RGB") + huge + huge + b"\x86NC\x03abceb.",
        "tensor of one number": plain.replace(b"K\x04\x85q", half + b"\x85q").replace(b"K\x01\x85q", b"K\x00\x85q"),
        "length of a storage": plain[:storage] + b"\xff\xff\xff\xff\xff\xff\xff\x0f" + plain[storage + 8 :],
        "lists of lists": doubled + b".",
        "tuples of tuples": tuples + b".",
        "tuples of tuples as a key": tuples + b"}h\x3cNs.",
        "tuples of tuples as keys": tuples + b"}(h\x3cNu.",
        "a deep tuple as a key": b"}N" + b"\x85" * 900_000 + b"Ns.",
        "a deep list": b"]" * 450_000 + b"a" * 449_999 + b".",
        "a deep tuple": b"N" + b"\x85" * 900_000 + b".",
        "a call as a key": b"}" + name("_codecs", "encode") + text("a") + text("latin1") + b"\x86RNs.",
        "a list in itself": b"]q\x00h\x00a.",
        "a call in itself": array + b"q\x00(K\x01K\x01\x85h\x00\x89C\x08abcdefghtb.",
        "very many lists": b"]" * 3_000_000 + b".",
        "very many marks": b"(" * 3_000_000 + b".",
        "a large image very often": name("PIL.Image", "Image") + b")\x81](}" + text("L") + b"M\xe8\x03M\xe8\x03\x86N"
        + bytes_of(bytes(10**6)) + b"ebq\x00](" + b"h\x00" * 400_000 + b"e.",
    }  # fmt: skip
