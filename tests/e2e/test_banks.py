"""Models of one image share the memory that lives within a run; inputs and outputs stay each model's own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import programs
import pytest

from monobloc.codegen.lower import Lowered
from monobloc.driver import build
from monobloc.object import elf
from monobloc.options import Options

APP = """
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include "alpha.h"
#include "beta.h"
static void fill(const char *path, void *to, size_t n) {
  FILE *f = fopen(path, "rb");
  if (!f || fread(to, 1, n, f) != n) exit(3);
  fclose(f);
}
static void put(const float *x, int n) { fwrite(x, 4, n, stdout); }
int main(int argc, char **argv) {
  fill(argv[1], alpha_in_x(), 4 * ALPHA_IN_X_SIZE);
  fill(argv[2], beta_in_ids(), 8 * BETA_IN_IDS_SIZE);
  fill(argv[3], beta_in_x(), 4 * BETA_IN_X_SIZE);
  for (int k = 0; k < 3; k++) {
    if (alpha_run()) return 1;
    if (beta_run()) return 2;
    put(alpha_out_y(), ALPHA_OUT_Y_SIZE);       /* written before beta ran over alpha's memory */
    put(alpha_out_features(), ALPHA_OUT_FEATURES_SIZE);
    put(beta_out_y(), BETA_OUT_Y_SIZE);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return programs.write_models(tmp_path_factory.mktemp("banks"))


def _want(models: dict[str, Path]) -> list[np.ndarray]:
    out = []
    for name, path in models.items():
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        out += session.run(None, programs.feeds(name))
    return out


def _work(p: Lowered) -> int:
    return sum(b.bytes for b in p.placement.banks if b.shareable)


def _io(p: Lowered) -> int:
    return sum(b.bytes for b in p.placement.banks if not b.shareable)


def _bss(path: Path) -> int:
    return sum(s.size for s in elf.sections(path.read_bytes()) if s.name == ".bss")


@pytest.mark.parametrize("lto", ["none", "thin", "full"])
def test_models_that_run_in_turn_share_memory(lto: str, models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text(APP)
    o = Options(lto=lto)  # type: ignore[arg-type]
    made = build([*models.values(), tmp_path / "app.c"], tmp_path / "app", "exe", o)
    feeds = [programs.feeds("alpha")["x"], programs.feeds("beta")["ids"], programs.feeds("beta")["x"]]
    for k, x in enumerate(feeds):
        (tmp_path / f"{k}.bin").write_bytes(x.tobytes())
    command = [str(tmp_path / "app"), *(str(tmp_path / f"{k}.bin") for k in range(len(feeds)))]
    got = np.frombuffer(subprocess.run(command, check=True, capture_output=True).stdout, np.float32)
    want = np.concatenate([np.ravel(y) for y in _want(models)] * 3)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    _check_sharing(made.programs)


def _check_sharing(made: Sequence[Lowered]) -> None:
    assert all(p.interface.shared for p in made)
    assert min(map(_work, made)) > 1024, "the models are too small to show anything"


def test_ram_is_inputs_and_outputs_and_the_largest_work(models: dict[str, Path], tmp_path: Path) -> None:
    """The image's .bss, shared and not; alone, a model has no part in it."""
    o = Options(lto="none")
    shared = build(list(models.values()), tmp_path / "shared.so", "shared", o)
    own = build(list(models.values()), tmp_path / "own.so", "shared", replace(o, arenas="own"))
    saved = min(map(_work, shared.programs))
    assert abs(_bss(tmp_path / "own.so") - _bss(tmp_path / "shared.so") - saved) < 256
    total = sum(map(_io, shared.programs)) + max(map(_work, shared.programs))
    assert total <= _bss(tmp_path / "shared.so") <= total + 1024
    assert not any(p.interface.shared for p in own.programs)


def test_a_second_model_is_refused_while_one_runs(models: dict[str, Path], tmp_path: Path, cache: Path) -> None:
    """Two threads, each with a model of its own: one of two runs that meet gets E_BUSY, none a wrong answer."""
    (tmp_path / "two.c").write_text("""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "alpha.h"
#include "beta.h"
static float first[ALPHA_OUT_Y_SIZE];
static volatile int busy, wrong, done;
static void *other(void *x) { while (!done) if (beta_run() == BETA_E_BUSY) busy = 1; return x; }
int main(void) {
  for (int i = 0; i < ALPHA_IN_X_SIZE; i++) alpha_in_x()[i] = (float)(i % 17) / 17;
  for (int i = 0; i < BETA_IN_X_SIZE; i++) beta_in_x()[i] = (float)(i % 13) / 13;
  if (alpha_run()) return 1;
  memcpy(first, alpha_out_y(), sizeof first);
  pthread_t t;
  pthread_create(&t, 0, other, 0);
  for (int i = 0; i < 100000 && (i < 100 || !busy); i++) {
    int e = alpha_run();
    if (e == ALPHA_E_BUSY) busy = 1;
    else wrong += e || memcmp(first, alpha_out_y(), sizeof first);
  }
  done = 1;
  pthread_join(t, 0);
  printf("%d\\n", busy);
  return wrong;
}
""")
    build([*models.values(), tmp_path / "two.c"], tmp_path / "two", "exe", Options(lto="thin", cache=cache))
    done = subprocess.run([str(tmp_path / "two")], capture_output=True, text=True)
    assert done.returncode == 0
    assert int(done.stdout) > 0, "the runs never met"
