"""Programs whose sizes data decide: detectors' ends, graphs' edges, numbers out of tensors. Against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
import torch
from torch import nn
from torch_tools import differs

import monobloc
from monobloc.eager import Session
from monobloc.frontend.formats import load_model
from monobloc.frontend.torch.program import export

SEED = 53
print(f"seed {SEED}")
RNG = np.random.default_rng(SEED)
Feeds = dict[str, np.ndarray]


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def agree(module: nn.Module, feeds: Sequence[Feeds], cache: Path, **options: Any) -> monobloc.CompiledModel:
    program = export(module.eval(), tuple(torch.from_numpy(x) for x in feeds[0].values()))
    m, session = monobloc.compile(program, lto="none", cache=cache, **options), Session(program)
    for f in feeds:
        want, got = session.run(f), m.run(f)
        assert not {k: d for k in want if (d := differs(got[k], want[k]))}, f
    return m


class Reads(nn.Module):
    """What may read rows that a mask marks"""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.table = nn.Linear(4, 3), nn.LayerNorm(3), nn.Embedding(5, 3)

    def forward(self, x: Any, i: Any) -> Any:
        k = x[x[:, 0] > 0]
        made = [k[:, 1:3].sum(1), k.mean(0), torch.cat([k, x]), k.softmax(0), k.cumsum(0), k @ torch.ones(4, 2)]
        made += [k.unsqueeze(0).transpose(1, 2), k.flatten(), k[:, None] * torch.ones(1, 3, 1), k.amax(1), k.t()]
        made += [k.sort(0)[0], (k > 0).any(1), self.norm(self.linear(k)).relu(), self.table(i[i > 1]), k.sum()]
        made += [k.topk(2, 1)[0], k.reshape(-1, 2, 2), k.min(1)[1], torch.nonzero(k > 1), torch.stack([k, k * 2], 1)]
        made += [(k > 0).any(0), k.any(), (k > 0).all(0), (k > 0).all()]  # of nothing, too
        return [*made, k[k[:, 1] > 0], torch.zeros_like(k) + k.shape[0]]


def test_what_reads_rows_that_a_mask_marks(cache: Path) -> None:
    i = RNG.integers(0, 5, 6)
    agree(Reads(), [{"x": x, "i": i} for x in (f32(6, 4), -np.abs(f32(6, 4)), np.abs(f32(6, 4)))], cache)


class Edges(nn.Module):
    """A graph without its loops, as layers of graphs have it; and elements that occur once"""

    def forward(self, x: Any, e: Any, v: Any) -> Any:
        x = x.clone()
        values, places, often = torch.unique(x, return_inverse=True, return_counts=True)
        runs, where, long = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
        e = e[:, e[0] != e[1]]
        degree = torch.zeros(5).scatter_add(0, e[1], torch.ones(e.shape[1]))
        sums = torch.zeros(5, 3).index_add(0, e[1], v[e[0]])
        marked = torch.full((5,), 9.0).scatter(0, e[0], 2.0)
        best = torch.zeros(5).scatter_reduce(0, e[1], v[e[0], 0], "amax")
        alone = torch.ones(5).scatter_reduce(0, e[1], v[e[0], 0], "prod", include_self=False)
        weights = v[e[0], 1].clone()
        loops = e[0] > e[1]
        weights[loops] += degree[e[0]][loops]
        weights[weights > 1] = 7.0
        x[x > 1] = x[x > 1] - 5
        found = [values, places, often, runs, where, long, torch.unique(x.view(4, 2), dim=0), runs[runs != 0]]
        return [*found, degree, sums, marked, best, alone, weights, x]


def test_edges_of_a_graph_and_what_is_unique(cache: Path) -> None:
    edges = [RNG.integers(0, 5, (2, 9)), RNG.integers(0, 5, (2, 9)), np.ones((2, 9), np.int64)]
    agree(Edges(), [{"x": RNG.integers(0, 3, 8), "e": e, "v": f32(5, 3)} for e in edges], cache)


class Counts(nn.Module):
    def __init__(self, bound: int | None) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        if self.bound is not None:
            torch._check(k <= self.bound)
        return torch.arange(k) * 2, torch.zeros(k, 4) + x[0], x[: k // 2].sum(0), torch.full((k + 1,), k)


def test_numbers_out_of_tensors_are_sizes_up_to_a_bound(cache: Path) -> None:
    feeds = [{"x": f32(8, 4), "n": np.array(k)} for k in (3, 0, 8)]
    for bound, options in ((8, {}), (None, {"max_value": {"n": 8}})):
        m = agree(Counts(bound), feeds, cache, **options)
        with pytest.raises(monobloc.MonoblocError, match="size"):
            m.run({**feeds[0], "n": np.array(9)})


def test_without_a_bound_the_error_says_how_to_give_one() -> None:
    program = export(Counts(None), (torch.randn(8, 4), torch.tensor(2)))
    with pytest.raises(monobloc.MonoblocError, match="--max-value n=N"):
        load_model(program)


def test_a_bound_of_nothing_is_an_error(cache: Path) -> None:
    program = export(Counts(3), (torch.randn(8, 4), torch.tensor(2)))
    with pytest.raises(monobloc.MonoblocError, match="no value 'm' that has a most"):
        monobloc.compile(program, max_value={"m": 3}, cache=cache)


# -- torchvision's operators, which need not be installed -------------------------------------------------
def _overlap(a: Any, b: Any) -> Any:
    low, high = torch.maximum(a[:2], b[:2]), torch.minimum(a[2:], b[2:])
    both = (high - low).clamp(min=0).prod()
    return both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both)


def _nms(boxes: Any, scores: Any, most: float) -> Any:
    kept: list[int] = []
    for k in scores.argsort(descending=True, stable=True).tolist():
        if all(_overlap(boxes[k], boxes[j]) <= most for j in kept):
            kept.append(k)
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(x: Any, rois: Any, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Any:
    """By onnxruntime, which has the same operator"""
    import onnxruntime
    from onnx import parser

    mode = "half_pixel" if aligned else "output_half_pixel"
    m = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 16]>
        g (float[a,b,c,d] x, float[n,4] r, int64[n] i) => (float[n,b,e,f] y) {{ y = RoiAlign<output_height = {height},
        output_width = {width}, sampling_ratio = {max(ratio, 0)}, spatial_scale = {float(scale)},
        coordinate_transformation_mode = "{mode}">(x, r, i) }}""")
    s = onnxruntime.InferenceSession(m.SerializeToString())
    feeds = {"x": x.numpy(), "r": rois[:, 1:].contiguous().numpy(), "i": rois[:, 0].long().numpy()}
    return torch.from_numpy(s.run(None, feeds)[0])


@pytest.fixture
def vision() -> Iterator[Any]:
    """Torchvision's names: its own operators where it is installed, else ours for this test"""
    try:
        import torchvision  # noqa: F401

        torch.ops.torchvision.nms  # noqa: B018
        yield torch.ops.torchvision
        return
    except (ImportError, AttributeError, RuntimeError):
        pass
    lib = torch.library.Library("torchvision", "FRAGMENT")
    lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    lib.define("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
               "int sampling_ratio, bool aligned) -> Tensor")
    lib.impl("nms", _nms, "CPU")
    lib.impl("roi_align", _roi_align, "CPU")
    torch.library.register_fake("torchvision::nms", lambda b, s, t: b.new_empty(
        torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64), lib=lib)
    torch.library.register_fake("torchvision::roi_align", lambda x, r, s, h, w, *_: x.new_empty(
        r.shape[0], x.shape[1], h, w), lib=lib)
    yield torch.ops.torchvision
    lib._destroy()


def test_the_end_of_a_detector(vision: Any, cache: Path) -> None:
    class Detector(nn.Module):
        def forward(self, boxes: Any, logits: Any, x: Any) -> Any:
            scores, label = logits.sigmoid().max(-1)
            sure = scores > 0.6
            b, s, c = boxes[sure], scores[sure], label[sure]
            apart = b + (c * 20).to(b.dtype)[:, None]
            kept = vision.nms(apart, s, 0.5)
            rois = torch.cat([torch.zeros_like(s[kept])[:, None], b[kept]], 1)
            return b[kept], s[kept], c[kept], vision.roi_align(x, rois, 0.5, 2, 3, 2, True), vision.nms(boxes, logits[
                :, 0], 0.3)

    def feeds(shift: float) -> Feeds:
        low = np.abs(f32(15, 2)) * 3
        boxes = np.concatenate([low, low + np.abs(f32(15, 2)) * 3 + 0.1], 1)
        return {"boxes": boxes, "logits": f32(15, 3) + np.float32(shift), "x": f32(1, 2, 9, 9)}

    agree(Detector(), [feeds(s) for s in (0, 0.5, 9, -1)], cache)


class Layers(nn.Module):
    """Layers along rows that a mask marks, and beside them"""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.group = nn.Conv1d(4, 6, 3, padding=1), nn.GroupNorm(2, 4)
        self.batch, self.norm = nn.BatchNorm1d(4), nn.LayerNorm(4)
        self.strided, self.up = nn.Conv1d(4, 4, 3, stride=2, padding=1, groups=2), nn.ConvTranspose1d(4, 2, 3, stride=2)

    def forward(self, x: Any) -> Any:
        k = x[x[:, 0] > -2]
        t = k.t()
        made = [self.conv(t), self.group(t[None]), self.strided(t), self.up(t[None]), t.flip(1), k.flip(0, 1)]
        made += [nn.functional.pad(k, (1, 0, 2, 1), value=3.0), nn.functional.pad(k, (0, 0, 0, -1))]
        made += [nn.functional.pad(t[None], (1, 1), mode="replicate"), k.var(0), k.std(1), k.var((0, 1), correction=0)]
        made += [torch.outer(k[:, 0], k[:, 1]), k.tile(2), *k.unbind(1), *k.split(2, 1), k.norm(dim=0), k @ x[0]]
        made += [torch.baddbmm(k[None], k[None], torch.ones(1, 4, 4), beta=0.5, alpha=2), k.logsumexp(0)]
        made += [nn.functional.avg_pool1d(t[None], 3, 2, 1), nn.functional.avg_pool1d(t, 3, 1, 1, False, False)]
        made += [nn.functional.max_pool2d(t[None], 2), *torch.var_mean(k, 0, keepdim=True), *torch.std_mean(k, 0)]
        made += [nn.functional.layer_norm(t, t.shape[1:]), nn.functional.scaled_dot_product_attention(
            k[None], k[None], k[None])]
        return [*made, self.batch(k), self.batch(t[None]), self.norm(k)]


def test_layers_along_rows_that_a_mask_marks(cache: Path) -> None:
    feeds = [{"x": f32(9, 4)} for _ in range(3)]
    for k, f in enumerate(feeds):
        f["x"][:, 0] = np.where(np.arange(9) % (k + 2) < 2, 1, -3)
    agree(Layers(), feeds, cache)


class Splits(nn.Module):
    """Parts of which data say how large they are, of an axis of which data do too"""

    def forward(self, x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 1)
        torch._check(k <= 6)
        a, b = torch.split(x, [k, 8 - k])
        return a * 2, b.sum(0), nn.functional.pad(a, (0, 0, 0, k))


def test_parts_whose_sizes_are_data(cache: Path) -> None:
    agree(Splits(), [{"x": f32(8, 4), "n": np.array(k)} for k in (3, 1, 6)], cache)
