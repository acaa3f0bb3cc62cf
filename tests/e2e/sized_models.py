"""Models whose sizes data decide, what they are fed with, and whether they agree with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from border import build
from control_models import text

from monobloc.frontend.importer import load_onnx
from monobloc.frontend.importing import Choices
from monobloc.ir.interp import interpret
from monobloc.loader import CompiledModel
from monobloc.options import Options

SEED = 47
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
OPTIONS = Options(lto="none")
Feeds = dict[str, np.ndarray]
FAR = (1 << 63) - 1


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def want(m: onnx.ModelProto, f: Feeds) -> Feeds:
    s = onnxruntime.InferenceSession(m.SerializeToString())
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, f), strict=True))


def same(got: Feeds, right: Feeds, where: Any) -> None:
    assert got.keys() == right.keys()
    for name, y in right.items():
        assert (got[name].shape, got[name].dtype) == (y.shape, y.dtype), (name, where)
        np.testing.assert_allclose(got[name], y, rtol=1e-5, atol=1e-5, err_msg=f"{name} of {where}")


class Model:
    """A body, what it is fed with, and how large numbers get"""

    def __init__(self, body: str, feeds: Sequence[Feeds], most: Mapping[str, Sequence[int]] | None = None,
                 opset: int = 17, **weights: np.ndarray) -> None:
        self.proto = text(body, opset, **weights)
        self.feeds, self.most = feeds, most or {}


def agree(m: Model, folder: Path) -> None:
    """What the graph means, and what comes out of the machine"""
    g = load_onnx(m.proto, Choices(max_values=m.most)).graph
    right = [want(m.proto, f) for f in m.feeds]
    for f, r in zip(m.feeds, right, strict=True):
        same(interpret(g, f), r, f)
    model = CompiledModel(build({"m": m.proto}, folder, replace(OPTIONS, max_values=m.most)).path)
    for f, r in zip(m.feeds, right, strict=True):
        same(model.run(f), r, f)
