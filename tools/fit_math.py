"""Where the polynomial coefficients of ``mb/math_f32.h`` and ``mb/math_f64.h`` come from.

The problem: each elementary function becomes, after range reduction, a smooth function on a small
interval, and wants the polynomial with the smallest *relative* error whose coefficients are floats.
The idea: Remez exchange in multiple precision; coefficients are rounded one at a time from the
lowest power on and the rest is fitted again, so that the rounding of one is repaired by the others.

Needs mpmath, which is no dependency of Monobloc: run by hand, ``python tools/fit_math.py exp_f32``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp

Real = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """``f(x) ~ base(x) + factor(x) * sum c_j x^(step j)``, error divided by ``scale(x)``."""

    f: Real
    lo: float
    hi: float
    terms: int
    factor: Real = lambda x: mp.mpf(1)
    base: Real = lambda x: mp.mpf(0)
    scale: Real | None = None
    step: int = 1
    digits: int = 24


def remez(fit: Fit, known: Sequence[mp.mpf]) -> tuple[list[mp.mpf], mp.mpf]:
    """The minimax coefficients after the ``known`` first ones, and the largest weighted error."""
    scale = fit.scale or fit.f
    free = range(len(known), fit.terms)
    lo, hi = mp.mpf(fit.lo), mp.mpf(fit.hi)
    count = 40 * fit.terms
    grid = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * i / count) for i in range(count + 1)]
    grid = [x for x in grid if fit.factor(x) != 0 and scale(x) != 0]
    rows = []
    for x in grid:
        powers = [x ** (fit.step * j) for j in range(fit.terms)]
        rest = fit.f(x) - fit.base(x)
        rest -= fit.factor(x) * mp.fsum(c * p for c, p in zip(known, powers, strict=False))
        weight = 1 / abs(scale(x))
        rows.append(([fit.factor(x) * powers[j] * weight for j in free], rest * weight))
    size = len(free) + 1
    picks = [round(i * (len(grid) - 1) / (size - 1)) for i in range(size)]
    solution: list[mp.mpf] = []
    worst = mp.mpf(0)
    for _ in range(30):
        matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
        for i, pick in enumerate(picks):
            for j, value in enumerate(rows[pick][0]):
                matrix[i, j] = value
            matrix[i, size - 1] = (-1) ** i
            right[i] = rows[pick][1]
        result = mp.lu_solve(matrix, right)
        solution, level = list(result)[: size - 1], abs(result[size - 1])
        errors = [
            r - mp.fsum(c * b for c, b in zip(solution, basis, strict=True)) for basis, r in rows
        ]
        worst = max(abs(e) for e in errors)
        if worst <= level * mp.mpf("1.01"):
            break
        picks = exchange(errors, size)
    return solution, worst


def exchange(errors: Sequence[mp.mpf], size: int) -> list[int]:
    """The ``size`` alternating extrema of ``errors`` with the largest values."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > size:
        if len(runs) == size + 1:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
            continue
        weakest = min(
            range(len(runs) - 1), key=lambda i: abs(errors[runs[i]]) + abs(errors[runs[i + 1]])
        )
        del runs[weakest : weakest + 2]
    while len(runs) < size:
        missing = next(i for i in range(len(errors)) if i not in runs)
        runs = sorted([*runs, missing])
    return runs


def rounded(fit: Fit) -> tuple[list[mp.mpf], mp.mpf]:
    """Coefficients with ``digits`` bits: fitted again after each rounding, or not, the better."""
    plain, _ = remez(fit, [])
    known: list[mp.mpf] = []
    for _ in range(fit.terms):
        rest, _ = remez(fit, known)
        with mp.workprec(fit.digits):
            known.append(+rest[0])
    with mp.workprec(fit.digits):
        plain = [+c for c in plain]
    return min(((c, largest_error(fit, c)) for c in (known, plain)), key=lambda pair: pair[1])


def largest_error(fit: Fit, coefficients: Sequence[mp.mpf]) -> mp.mpf:
    """The largest weighted error on a grid finer than the one used for fitting."""
    errors = []
    scale = fit.scale or fit.f
    for i in range(1, 1000):
        x = fit.lo + (mp.mpf(fit.hi) - fit.lo) * i / 1000
        if scale(x) == 0:
            continue
        value = mp.fsum(c * x ** (fit.step * j) for j, c in enumerate(coefficients))
        errors.append(abs((fit.f(x) - fit.base(x) - fit.factor(x) * value) / scale(x)))
    return max(errors)


def hexadecimal(value: mp.mpf, digits: int) -> str:
    """``value`` as a C literal of ``float`` or ``double``, exactly."""
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}" + ("f" if digits == 24 else "")


HALF_LN2 = 0.3466
LOG2E = 1 / mp.log(2)


def tail(y: mp.mpf) -> mp.mpf:
    """The scaled tail of the normal distribution, Phi(-y) exp(y^2/2)."""
    return mp.erfc(y / mp.sqrt(2)) / 2 * mp.exp(y * y / 2)


def scaled_tail(knee: float) -> Real:
    """``tail(y) (y + knee) / knee`` as a function of v = knee / (y + knee) - 1/2."""
    return lambda v: tail(knee / (v + 0.5) - knee) / (v + 0.5)


FITS = {
    "exp_f32": Fit(mp.exp, -HALF_LN2, HALF_LN2, 6, lambda x: x * x, lambda x: 1 + x),
    "exp2_f32": Fit(lambda x: mp.mpf(2) ** x, -0.5, 0.5, 6, lambda x: x, lambda x: mp.mpf(1)),
    "expm1_f32": Fit(mp.expm1, -HALF_LN2, HALF_LN2, 6, lambda x: x * x, lambda x: x),
    "log_f32": Fit(mp.log1p, 2**-0.5 - 1, 2**0.5 - 1, 10, lambda x: x * x, lambda x: x),
    "log2_f32": Fit(
        lambda x: mp.log1p(x) * LOG2E,
        2**-0.5 - 1,
        2**0.5 - 1,
        10,
        lambda x: x * x,
        lambda x: x * LOG2E,
    ),
    "log2_pow": Fit(
        lambda x: mp.log1p(x) * LOG2E, 2**-0.5 - 1, 2**0.5 - 1, 14, lambda x: x, digits=53
    ),
    "exp2_pow": Fit(
        lambda x: mp.mpf(2) ** x, -0.5, 0.5, 7, lambda x: x, lambda x: mp.mpf(1), digits=53
    ),
    "erf_small_f32": Fit(mp.erf, 0, 0.925, 6, lambda x: x, lambda x: x, step=2),
    "erfc_log_f32": Fit(
        lambda x: mp.log(mp.erfc(x)),
        0.92,
        4.0,
        6,
        lambda x: x,
        lambda x: -x,
        scale=lambda x: mp.erf(x) / mp.erfc(x),
    ),
    "tail_f32": Fit(scaled_tail(3.0), 3 / 17.5 - 0.5, 0.5, 11),
    "sin_f32": Fit(mp.sin, 0, 0.8, 3, lambda x: x**3, lambda x: x, step=2),
    "cos_f32": Fit(mp.cos, 0, 0.8, 3, lambda x: x**4, lambda x: 1 - x * x / 2, step=2),
    "asin_f32": Fit(mp.asin, 0, 0.5, 6, lambda x: x**3, lambda x: x, step=2),
    "atan_f32": Fit(mp.atan, 0, 1.0, 9, lambda x: x**3, lambda x: x, step=2),
    "sinh_f32": Fit(mp.sinh, 0, 1.0, 4, lambda x: x**3, lambda x: x, step=2),
    "exp_f64": Fit(mp.exp, -HALF_LN2, HALF_LN2, 11, lambda x: x * x, lambda x: 1 + x, digits=53),
    "expm1_f64": Fit(mp.expm1, -HALF_LN2, HALF_LN2, 11, lambda x: x * x, lambda x: x, digits=53),
    "log_f64": Fit(
        lambda s: 2 * mp.atanh(s), 0, 0.1716, 8, lambda s: s**3, lambda s: 2 * s, step=2, digits=53
    ),
    "log_pow_f64": Fit(
        lambda s: 2 * mp.atanh(s),
        0,
        0.1716,
        8,
        lambda s: s**5,
        lambda s: 2 * s + s**3 * 2 / 3,
        step=2,
        digits=53,
    ),
    "exp2_f64": Fit(
        lambda x: mp.mpf(2) ** x, -0.5, 0.5, 13, lambda x: x, lambda x: mp.mpf(1), digits=53
    ),
    "sin_f64": Fit(mp.sin, 0, 0.8, 6, lambda x: x**3, lambda x: x, step=2, digits=53),
    "cos_f64": Fit(mp.cos, 0, 0.8, 6, lambda x: x**4, lambda x: 1 - x * x / 2, step=2, digits=53),
    "erf_f64": Fit(mp.erf, 0, 1.0, 13, lambda x: x, lambda x: x, step=2, digits=53),
    "tail_f64": Fit(scaled_tail(5.0), 5 / 44.0 - 0.5, 0.5, 24, digits=53),
    "asin_f64": Fit(mp.asin, 0, 0.5, 13, lambda x: x**3, lambda x: x, step=2, digits=53),
    "atan_f64": Fit(mp.atan, 0, 0.4143, 12, lambda x: x**3, lambda x: x, step=2, digits=53),
    "sinh_f64": Fit(mp.sinh, 0, 1.0, 8, lambda x: x**3, lambda x: x, step=2, digits=53),
}


def main(names: Sequence[str]) -> None:
    """Print the coefficients of the named fits, lowest power first."""
    mp.mp.prec = 200
    for name in names or FITS:
        coefficients, error = rounded(FITS[name])
        print(f"{name}: error 2^{float(mp.log(error, 2)):.2f}")
        for c in coefficients:
            print(f"    {hexadecimal(c, FITS[name].digits)}  /* {mp.nstr(c, 12)} */")


if __name__ == "__main__":
    main(sys.argv[1:])
