"""A decoder from PyTorch: a mask as long as what was and what is new together, and a cache that grows inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from monobloc.driver import build  # noqa: E402
from monobloc.loader import CompiledModel  # noqa: E402
from monobloc.options import Options  # noqa: E402

HEADS, DEEP, WORDS, MOST = 2, 8, 30, 24
WIDE = HEADS * DEEP


class Decoder(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.parts = torch.nn.Embedding(WORDS, WIDE), torch.nn.Linear(WIDE, 3 * WIDE)
        self.head = torch.nn.Linear(WIDE, WORDS)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor) -> Any:
        x = self.words(ids)
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, DEEP).transpose(1, 2) for y in self.parts(x).chunk(3, -1))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :] > 0)
        return {"y": self.head(y.transpose(1, 2).reshape(b, t, WIDE)), "k": k, "v": v}


def test_a_decoder_from_a_file(tmp_path: Path, cache: Path) -> None:
    torch.manual_seed(0)
    m = Decoder().eval()
    past, seq = torch.export.Dim("past", min=0, max=MOST), torch.export.Dim("seq", min=1, max=8)
    was = [torch.randn(1, HEADS, 5, DEEP) for _ in range(2)]
    exported = torch.export.export(
        m, (torch.ones(1, 3, dtype=torch.long), torch.ones(1, 8), *was),
        dynamic_shapes={"ids": {1: seq}, "mask": {1: torch.export.Dim.AUTO}, "past_k": {2: past}, "past_v": {2: past}})
    torch.export.save(exported, tmp_path / "decoder.pt2")
    names = [str(n.meta["val"].shape[k]) for n in exported.graph.nodes
             for wanted, k in (("ids", 1), ("past_k", 2)) if n.name == wanted]
    dims = dict(zip(names, [(1, 2, 3, 4), tuple(range(MOST + 1))], strict=True))
    build([tmp_path / "decoder.pt2"], tmp_path / "m.so", "shared",
          Options(lto="none", dims=dims, persist=(("past_*", "*"),), cache=cache))
    c, rng = CompiledModel(tmp_path / "m.so"), np.random.default_rng(0)
    for _ in range(2):
        k = v = torch.zeros(1, HEADS, 0, DEEP)
        for n in (3, 1, 2, 4, 1, 1):
            ids, mask = rng.integers(0, WORDS, (1, n)), np.ones((1, k.shape[2] + n), np.float32)
            with torch.no_grad():
                want = m(torch.tensor(ids), torch.tensor(mask), k, v)
            k, v = want["k"], want["v"]
            got = c.run({"ids": ids, "mask": mask})
            assert list(got) == ["y"]
            np.testing.assert_allclose(got["y"], want["y"].numpy(), rtol=1e-4, atol=1e-5)
        c.reset()
