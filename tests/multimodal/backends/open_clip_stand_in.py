"""What holdfast uses of open_clip, with towers of its layout and random weights: the library needs torchvision."""

from types import ModuleType

import torch
from torch import nn

LENGTH = 10


class Block(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.ln_1 = nn.LayerNorm(16)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=batch_first)

    def forward(self, x):
        normed = self.ln_1(x)
        return x + self.attn(normed, normed, normed, need_weights=False)[0]


class Transformer(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.batch_first = batch_first
        self.resblocks = nn.ModuleList([Block(batch_first), Block(batch_first)])

    def forward(self, x):
        for block in self.resblocks:
            x = block(x)
        return x


class Vit(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.image_size, self.grid_size = (32, 32), (4, 4)
        self.conv1 = nn.Conv2d(3, 16, 8, 8)
        self.class_embedding = nn.Parameter(torch.randn(16))
        self.positional_embedding = nn.Parameter(torch.randn(17, 16))
        self.transformer = Transformer(batch_first)
        self.proj = nn.Parameter(torch.randn(16, 12))

    def forward(self, images):
        x = self.conv1(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_embedding.expand(len(x), 1, 16), x], 1) + self.positional_embedding
        x = self.transformer(x) if self.transformer.batch_first else self.transformer(x.transpose(0, 1)).transpose(0, 1)
        x = x[:, 0]
        return x if self.proj is None else x @ self.proj


class AttentionPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.randn(17, 16))
        self.q_proj, self.k_proj, self.v_proj = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.c_proj = nn.Linear(16, 12)

    def forward(self, maps):
        x = maps.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.positional_embedding
        weights = (self.q_proj(x[:, :1]) @ self.k_proj(x).transpose(1, 2) / 4).softmax(-1)
        return self.c_proj(weights @ self.v_proj(x))[:, 0]


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_size = 32
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 4, 1), nn.BatchNorm2d(8)
        self.layer4 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.attnpool = AttentionPool()

    def forward(self, images):
        return self.attnpool(self.layer4(self.bn1(self.conv1(images)).relu()))


class Clip(nn.Module):
    def __init__(self, visual):
        super().__init__()
        self.visual = visual
        self.token_embedding = nn.Embedding(130, 16)
        self.positional_embedding = nn.Parameter(torch.randn(LENGTH, 16))
        self.transformer = Transformer(batch_first=True)
        self.ln_final = nn.LayerNorm(16)
        self.text_projection = nn.Parameter(torch.randn(16, 12))
        self.logit_scale = nn.Parameter(torch.tensor(3.0))

    def encode_image(self, images):
        return self.visual(images)

    def encode_text(self, tokens):
        x = self.ln_final(self.transformer(self.token_embedding(tokens) + self.positional_embedding))
        x = x[torch.arange(len(x)), tokens.argmax(1)]
        return x if self.text_projection is None else x @ self.text_projection


def tokenize(texts):
    tokens = torch.zeros(len(texts), LENGTH, dtype=torch.int64)
    for row, text in enumerate(texts):
        codes = [min(ord(letter), 127) for letter in text][: LENGTH - 1]
        tokens[row, : len(codes) + 1] = torch.tensor([*codes, 129])
    return tokens


def clip(name):
    torch.manual_seed(0)
    return Clip({"RN50": ResNet, "ViT": lambda: Vit(True), "ViT-old": lambda: Vit(False)}[name]())


def library():
    module = ModuleType("open_clip")

    def create_model(name, pretrained, precision):
        assert precision == "fp32"
        if pretrained != "openai":
            raise RuntimeError(f"no weights {pretrained}")
        return clip(name)

    module.create_model, module.get_tokenizer = create_model, lambda name: tokenize
    return module
