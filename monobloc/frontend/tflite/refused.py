"""Builtin operators that are not read, each with the reason.

The rest of the schema's operators without a reader are those of StableHLO that LiteRT has no kernel of: they name
what a converter may leave in a file for other backends, and nothing says what their answers are bit for bit.
"""

from __future__ import annotations

_STRINGS = "keys or values are strings"
_RANDOM = "is no function of its inputs"
_NOWHERE = "LiteRT has no kernel of it"
REASONS = {
    "HASHTABLE": _STRINGS, "HASHTABLE_FIND": _STRINGS, "HASHTABLE_IMPORT": _STRINGS, "HASHTABLE_SIZE": _STRINGS,
    "SKIP_GRAM": "takes strings", "LSH_PROJECTION": "hashes bytes with FarmHash, which nothing here computes",
    "RANDOM_STANDARD_NORMAL": _RANDOM, "RANDOM_UNIFORM": _RANDOM, "MULTINOMIAL": _RANDOM,
    "CALL": _NOWHERE, "CONCAT_EMBEDDINGS": _NOWHERE,
    "DELEGATE": "holds what a delegate compiled: compile the model it was made of",
    "CUSTOM": "custom operators are read by name", "PLACEHOLDER_FOR_GREATER_OP_CODES": "is no operator",
}  # fmt: skip


def reason(name: str) -> str:
    """Why a builtin operator is not read, or nothing where that is not known"""
    return REASONS.get(name, _NOWHERE if name.startswith("STABLEHLO_") else "")
