"""Fixed point of 32 bits, as TFLite's kernels compute exponentials, reciprocals, roots and logarithms in it.

Python integers, for tables that are made while a model is read and for references; the C of what runs is in
csrc/include/mb/tfl.h under the same names. `bits` is the number of integer bits of a value.
"""

from __future__ import annotations

from functools import lru_cache

TOP, LOW = (1 << 31) - 1, -(1 << 31)
EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2^k) for k from -2


def high32(a: int, b: int) -> int:
    """The doubled product's high half, rounded"""
    v = a * b
    v += (1 << 30) if v >= 0 else 1 - (1 << 30)
    return min(v >> 31 if v >= 0 else -(-v >> 31), TOP)


def right32(x: int, by: int) -> int:
    """x / 2^by, rounded half away from zero"""
    mask = (1 << by) - 1
    return (x >> by) + ((x & mask) > (mask >> 1) + (x < 0))


def left32(x: int, by: int) -> int:
    """x * 2^by, cut to 32 bits; a negative `by` is a rounded division"""
    return max(min(x << by, TOP), LOW) if by >= 0 else right32(x, -by)


def half_sum32(a: int, b: int) -> int:
    total = a + b
    v = total + (1 if total >= 0 else -1)
    return v // 2 if v >= 0 else -(-v // 2)


def reciprocal32(x: int) -> int:
    """1 / (1 + x) for x in [0, 1), by Newton's method"""
    half = half_sum32(x, TOP)
    y = 1515870810 + high32(half, -1010580540)
    for _ in range(3):
        y += left32(high32(y, (1 << 29) - high32(half, y)), 2)
    return left32(y, 1)


def exp32(a: int, bits: int) -> int:
    """exp(a) for a <= 0, without integer bits: factors for the powers of two, a polynomial for the last quarter"""
    if a == 0:
        return TOP
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    part = (a & (quarter - 1)) - quarter
    y = _exp_quarter(left32(part, bits))
    rest = part - a
    for k in range(-2, bits):
        if rest & (1 << (fraction + k)):
            y = high32(y, EXP_FACTORS[k + 2])
    if bits > 5:
        y = 0 if a < -(1 << (36 - bits)) else y
    return y


def _exp_quarter(a: int) -> int:
    """exp(a) for a in [-1/4, 0)"""
    base, third = 1895147668, 715827883  # exp(-1/8), 1/3
    x = a + (1 << 28)
    x2 = high32(x, x)
    x3, x4 = high32(x2, x), high32(x2, x2)
    tail = right32(high32(right32(x4, 2) + x3, third) + x2, 1)
    return min(base + high32(base, x + tail), TOP)


def reciprocal_of(x: int, bits: int) -> tuple[int, int]:
    """1 / x as (a number in [1/2, 1), the bits that it is over)"""
    zeros = 32 - x.bit_length()
    return reciprocal32((x << zeros) - (1 << 31)), bits - zeros


@lru_cache(maxsize=1 << 16)
def inverse_root(x: int) -> tuple[int, int]:
    """(multiplier, exponent) of 1 / sqrt(x), by Newton's method with 3 integer bits"""
    if x <= 1:
        return TOP, 0
    shift = 11
    while x >= 1 << 29:
        x, shift = x // 4, shift + 1
    pairs = (32 - x.bit_length() - 1) // 2 - 1
    shift, x = shift - pairs, x << 2 * pairs
    half, three, y = right32(x >> 1, 1), (1 << 28) + (1 << 27), 1 << 28
    for _ in range(5):
        cube = left32(high32(high32(y, y), y), 6)
        y = left32(high32(three, y) - high32(half, cube), 3)
    y = high32(y, 1518500250)
    if shift < 0:
        y, shift = y << -shift, 0
    return y, -shift


def log32(x: int, bits: int, to: int) -> int:
    """log(x) for x >= 1 of `bits` integer bits, with `to` of them"""
    more = to + 1
    quarter = right32(536870912, more)
    zeros = 32 - x.bit_length()
    r_a = left32(high32(left32(x, zeros - 1), 1518500250), 1)
    pow_a = left32(bits - zeros, 31 - more) + quarter
    z_b = high32(x, 1518500250)
    room = 32 - z_b.bit_length() - 1
    r_b, pow_b = left32(x, room), left32(bits - room, 31 - more) - quarter
    r, power = min(r_a, r_b), max(pow_a, pow_b)
    p, q = half_sum32(r, 1805811301), 2 * (r - 1805811301)
    square = high32(q, q)
    num = high32(q, r) + high32(high32(q, square), 117049297)
    under = high32(p, 1057819769 + q + high32(127690142, square)) + high32(638450708, q)
    total = high32(power, 1488522236) + high32(right32(num, more), reciprocal32(under))
    return left32(total, 1)
