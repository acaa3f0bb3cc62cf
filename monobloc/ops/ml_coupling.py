"""Probabilities of classes out of those of their pairs, as support vector classifiers have them.

Problem: the answer is a fixed point, reached by as many rounds as data ask for, so no sum of other operators
gives it. Source: Wu, Lin, Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004),
second method, with the bounds of libsvm and onnxruntime: 100 rounds, an error of 0.005 / classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.graph import Node, Value
from monobloc.ir.types import DType, TensorType
from monobloc.ops import Case, OpDef, Tol
from monobloc.ops.shape import only

F = np.float32
ROUNDS, ERROR = 100, 0.005


class CoupledProbabilities(OpDef):
    """[rows, pairs] -> [rows, classes]; a pair's number is the probability of its first class against its second"""

    name = "CoupledProbabilities"
    internal = True
    example = {"classes": 2}
    tol = Tol(1e-4, 1e-5)

    def infer(self, ins: Sequence[Value | None], attrs: dict[str, Any]) -> list[TensorType]:
        x, k = only(ins[0], self.name), attrs["classes"]
        if x.dtype is not DType.F32 or x.type.rank != 2 or k < 2 or x.shape[1] != k * (k - 1) // 2:
            raise ModelError(f"CoupledProbabilities of {k} classes of {x.type}")
        return [TensorType(DType.F32, (x.shape[0], k))]

    def ref(self, attrs: dict[str, Any], *xs: np.ndarray | None) -> np.ndarray:
        x = xs[0]
        assert x is not None
        k = attrs["classes"]
        return np.array([_coupled(row, k) for row in x], F).reshape(len(x), k)

    def routine(self, n: Node, c: Any) -> str:
        x, k = n.used[0], n.attrs["classes"]
        return f"""\
enum {{ k = {k} }};
const float *x = {c.ptr(x)};
float *p = {c.ptr(n.outputs[0])}, *q = (float *){c.scratch(4 * k * k)}, *s = (float *){c.scratch(4 * k)};
for (long row = 0; row < {x.shape[0]}; row++, p += k) {{
  for (long i = 0; i < k; i++) q[i * k + i] = 0, p[i] = 1.0f / k;
  for (long i = 0; i < k; i++)
    for (long j = i + 1; j < k; j++) {{
      const float won = *x++, lost = 1 - won;
      q[i * k + i] += lost * lost;
      q[j * k + j] += won * won;
      q[i * k + j] = q[j * k + i] = -won * lost;
    }}
  for (int round = 0; round < {ROUNDS}; round++) {{
    float all = 0, error = 0;
    for (long i = 0; i < k; i++) {{
      s[i] = 0;
      for (long j = 0; j < k; j++) s[i] += q[i * k + j] * p[j];
      all += p[i] * s[i];
    }}
    for (long i = 0; i < k; i++) error = __builtin_fmaxf(error, __builtin_fabsf(s[i] - all));
    if (error < {ERROR!r}f / k) break;
    for (long i = 0; i < k; i++) {{
      const float step = (all - s[i]) / q[i * k + i], over = 1 / (1 + step);
      p[i] += step;
      all = (all + step * (step * q[i * k + i] + 2 * s[i])) * over * over;
      for (long j = 0; j < k; j++) s[j] = (s[j] + step * q[i * k + j]) * over, p[j] *= over;
    }}
  }}
}}"""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        for k in (2, 3, 5):
            yield Case((rng.uniform(0.02, 0.98, (4, k * (k - 1) // 2)).astype(F),), {"classes": k}, f"{k}")
        yield Case((np.zeros((0, 3), F),), {"classes": 3}, "none")


def _coupled(pairs: np.ndarray, k: int) -> np.ndarray:
    q, p = np.zeros((k, k), F), np.full(k, 1 / k, F)
    for won, (i, j) in zip(pairs, combinations(range(k), 2), strict=True):
        lost = F(1) - won
        q[i, i] += lost * lost
        q[j, j] += won * won
        q[i, j] = q[j, i] = -won * lost
    for _ in range(ROUNDS):
        s = q @ p
        total = p @ s
        if np.abs(s - total).max() < F(ERROR) / F(k):
            break
        for i in range(k):
            step = (total - s[i]) / q[i, i]
            over = F(1) / (F(1) + step)
            p[i] += step
            total = (total + step * (step * q[i, i] + 2 * s[i])) * over * over
            s = (s + step * q[i]) * over
            p *= over
    return p
