"""The scalar functions of expressions, by what machines and compilers can do with them.

The names are those of `Op.fn`; their C spellings are in `codegen/scalars.py`.
"""

# computed on whole vectors inside the epilogue of a contraction
VECTOR_FNS = frozenset(
    "add sub mul div neg abs max min relu exp log tanh sigmoid erf gelu gelu_tanh silu sqrt reciprocal softplus mish "
    "softsign expm1 clip_lo clip_hi floor ceil round select lt le eq land lor lnot".split()
)

# more than a few cycles per element: not computed twice for the sake of fusion
EXPENSIVE_FNS = frozenset(
    "exp log tanh sigmoid erf gelu gelu_tanh silu pow sin cos tan asin acos atan sinh cosh asinh acosh atanh mish "
    "softplus expm1 log1p div sqrt reciprocal fmod mod imod irem ipow".split()
)
