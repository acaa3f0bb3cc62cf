"""Copies of one model in one image: what they share is stored once, and none disturbs another.

Twice the same model under two names; and two fine-tuned copies, of whose six tensors two differ. Copies are called
in turns, from C and from Python: each answers as if it were alone, and its outputs outlive the other's runs.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import Build, build, compile_to_object
from monobloc.loader import CompiledModel
from monobloc.object import elf
from monobloc.options import Options

SEED = 11
SIZES = (64, 256, 512, 32)  # of the layers; the last one is what fine-tuning changes
CODE = 16 << 10  # a copy's code is less

APP = """
#include <stdio.h>
#include <string.h>
#include "one.h"
#include "two.h"
static float kept[ONE_OUT_Y_SIZE];
static void show(const float *y) { for (int i = 0; i < ONE_OUT_Y_SIZE; i++) printf("%.9g\\n", y[i]); }
int main(void) {
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < ONE_IN_X_SIZE; i++) one_in_x()[i] = (float)((i + k) % 7) / 7;
    for (int i = 0; i < TWO_IN_X_SIZE; i++) two_in_x()[i] = (float)((i + k) % 11) / 11;
    if (one_run()) return 1;
    memcpy(kept, one_out_y(), sizeof kept);
    if (two_run()) return 2;
    if (memcmp(kept, one_out_y(), sizeof kept)) return 3;  /* the other's run must not reach it */
    show(one_out_y());
    show(two_out_y());
    memcpy(kept, two_out_y(), sizeof kept);
    if (one_run()) return 4;  /* its input is still there */
    if (memcmp(kept, two_out_y(), sizeof kept)) return 5;
  }
  return 0;
}
"""


def tensors(tuned: bool) -> dict[str, np.ndarray]:
    """Six, of which the last two are another's after fine-tuning."""
    out = {}
    for k, (n, m) in enumerate(zip(SIZES, SIZES[1:])):
        rng = np.random.default_rng((SEED, k, tuned and k == len(SIZES) - 2))
        out[f"w{k}"] = rng.standard_normal((n, m), np.float32) / np.float32(np.sqrt(n))
        out[f"b{k}"] = rng.standard_normal(m, np.float32)
    return out


def answer(w: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    for k in range(len(SIZES) - 1):
        x = x @ w[f"w{k}"] + w[f"b{k}"]
        x = np.maximum(x, 0) if k < len(SIZES) - 2 else x
    return x


def write(path: Path, w: dict[str, np.ndarray]) -> Path:
    nodes, x = [], "x"
    for k in range(len(SIZES) - 1):
        last = k == len(SIZES) - 2
        nodes.append(helper.make_node("Gemm", [x, f"w{k}", f"b{k}"], ["y" if last else f"h{k}"]))
        nodes += [] if last else [helper.make_node("Relu", [f"h{k}"], [f"r{k}"])]
        x = f"r{k}"
    sizes = {"x": SIZES[0], "y": SIZES[-1]}
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in sizes.items()]
    inits = [numpy_helper.from_array(a, n) for n, a in w.items()]
    graph = helper.make_graph(nodes, "copy", ports[:1], ports[1:], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@dataclass(frozen=True)
class Pair:
    """Objects of the two, `one` and `two`, and their weights."""

    folder: Path
    weights: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]

    @property
    def objects(self) -> list[Path]:
        return [self.folder / "one.o", self.folder / "two.o"]

    def bytes(self, shared: bool) -> int:
        """Of the weights that both have, or that each has for itself."""
        one, two = self.weights
        return sum(a.nbytes for n, a in one.items() if np.array_equal(a, two[n]) is shared) * (1 if shared else 2)


@pytest.fixture(scope="module", params=["same", "tuned"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    weights = tensors(False), tensors(request.param == "tuned")
    for name, w in zip(("one", "two"), weights, strict=True):
        source = write(folder / "model.onnx", w)
        compile_to_object(source, folder / f"{name}.o", Options(lto="none", cache=cache, name=name))
    (folder / "app.c").write_text(APP)
    return Pair(folder, weights)


def stored_once(pair: Pair, image: Path) -> None:
    """Every tensor's bytes are in the file once for both models, or once for each that has its own."""
    data = image.read_bytes()
    one, two = pair.weights
    for name, a in one.items():
        for b in (a, two[name]):
            part = b[b.shape[0] // 2, :16] if b.ndim == 2 else b[:16]  # together in every order of storing
            assert data.count(part.tobytes()) == 1, name
    assert len(data) < pair.bytes(True) + pair.bytes(False) + 2 * CODE + (24 << 10)


def memory_overlaps(made: Build, image: Path) -> None:
    """Inputs and outputs are each model's own; the rest is as large as the larger one needs it."""
    banks = [b for p in made.programs for b in p.placement.banks]
    io = sum(b.bytes for b in banks if not b.shareable)
    work = [b.bytes for b in banks if b.shareable]
    bss = sum(s.size for s in elf.sections(image.read_bytes()) if s.name == ".bss")
    assert len(work) == 2 and min(work) >= 4 * max(SIZES)
    assert io + max(work) <= bss < io + max(work) + min(work)


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_copies_in_a_program(lto: str, pair: Pair, cache: Path) -> None:
    o = Options(lto=lto, cache=cache)  # type: ignore[arg-type]
    image = pair.folder / f"app.{lto}"
    made = build([*pair.objects, pair.folder / "app.c"], image, "exe", o)
    text = subprocess.run([str(image)], check=True, capture_output=True, text=True).stdout
    got = np.array(text.split(), np.float32).reshape(3, 2, SIZES[-1])
    for k in range(3):
        for m, period in ((0, 7), (1, 11)):
            x = ((np.arange(SIZES[0]) + k) % period / np.float32(period)).astype(np.float32)
            np.testing.assert_allclose(got[k, m], answer(pair.weights[m], x), rtol=1e-4, atol=1e-4)
    stored_once(pair, image)
    memory_overlaps(made, image)


def test_copies_in_a_shared_library(pair: Pair, cache: Path) -> None:
    image = pair.folder / "both.so"
    build(pair.objects, image, "shared", replace(Options(lto="thin"), cache=cache))
    models = [CompiledModel(image, k) for k in range(2)]
    x = np.random.default_rng(SEED).standard_normal((1, SIZES[0]), np.float32)
    for _ in range(3):
        first, second = models[0].run({"x": x}, copy=False)["y"], models[1].run({"x": 2 * x}, copy=False)["y"]
        np.testing.assert_allclose(first, answer(pair.weights[0], x), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(second, answer(pair.weights[1], 2 * x), rtol=1e-4, atol=1e-4)
    stored_once(pair, image)


def test_a_copy_costs_little_more_than_what_is_its_own(pair: Pair, cache: Path) -> None:
    o = Options(lto="thin", cache=cache)
    build(pair.objects[:1], pair.folder / "one.so", "shared", o)
    build(pair.objects, pair.folder / "pair.so", "shared", o)
    own = pair.bytes(False) // 2
    assert (pair.folder / "pair.so").stat().st_size <= (pair.folder / "one.so").stat().st_size + own + CODE
