"""Exports the two small seeded models of tests/models (needs torch and onnxscript; the tests do not).

    python tools/export_test_models.py tests/models
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


def block(i: int, o: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1, groups=o), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Encoder, decoder, skips: batch norm, pooling, transposed convolution, concat, resize."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = block(3, 12), block(12, 20), block(20, 28)
        self.up, self.d, self.e = nn.ConvTranspose2d(28, 20, 2, 2), block(40, 20), block(32, 12)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.avg_pool2d(b, 2))
        d = self.d(torch.cat([self.up(c), b], 1))
        u = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.softmax(self.out(self.e(torch.cat([u, a], 1))), 1)


class Layer(nn.Module):
    """One post-norm transformer layer with a joint projection to queries, keys and values."""

    def __init__(self, d: int, heads: int, f: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.f1, self.f2 = nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        q, k, v = self.q(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + mask, -1)
        x = self.n1(x + self.o((w @ v).transpose(1, 2).reshape(b, t, d)))
        return self.n2(x + self.f2(F.gelu(self.f1(x))))


class Encoder(nn.Module):
    """Token embedding, positions, two layers, a head: what BERT and ViT are made of."""

    def __init__(self, words: int = 64, d: int = 32, length: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, d)
        self.positions = nn.Parameter(torch.randn(1, length, d) * 0.3)
        self.layers = nn.ModuleList(Layer(d, 4, 64) for _ in range(2))
        self.head = nn.Linear(d, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.words(ids) + self.positions
        bias = (1.0 - mask[:, None, None, :].float()) * -1e4
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x[:, 0]), x


def main(out: str) -> None:
    torch.manual_seed(7)
    unet, image = UNet(), torch.randn(1, 3, 24, 32)
    for m in unet.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.momentum = 1.0
    unet.train()
    unet(image)  # running statistics that fit the random weights
    torch.onnx.export(
        unet.eval(), (image,), f"{out}/unet_small.onnx", opset_version=17, dynamo=False,
        input_names=["image"], output_names=["mask"],
    )  # fmt: skip
    ids, mask = torch.randint(0, 64, (2, 16)), torch.ones(2, 16, dtype=torch.long)
    torch.onnx.export(
        Encoder().eval(), (ids, mask), f"{out}/encoder_small.onnx", opset_version=18, dynamo=True,
        external_data=False, input_names=["ids", "mask"], output_names=["logits", "hidden"],
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1])
