"""Categories: values looked up by keys that are known, strings or numbers (ai.onnx.ml).

All vanish: an element is compared with every key, the first that is equal names the row of the table of values, and one
more row, which every element is equal to, is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from monobloc.ir.graph import Value
from monobloc.ir.strings import string_shape, to_chars, to_text
from monobloc.ir.types import DType
from monobloc.ops import OpDef
from monobloc.ops.build import read_as
from monobloc.ops.shape import reshape
from monobloc.ops.strings import equal, picked

Array = np.ndarray
BOOL, CHAR, I64 = DType.BOOL, DType.CHAR, DType.I64


def same_as_keys(b: Any, x: Value, keys: Array, nan: bool = True) -> Value:
    """A further axis: whether an element is equal to each key; `nan`: whether NaN is equal to NaN"""
    shape, room = string_shape(x.type), x.shape[len(string_shape(x.type)) :]
    rows = reshape(b, x, [*shape, 1, *room])
    if x.dtype is CHAR:
        return equal(b, rows, b.const(to_chars(keys, "the keys")))
    same: Value = b.one("Equal", rows, b.const(keys))
    if nan and x.dtype.is_float and np.isnan(keys).any():
        same = b.one("Or", same, b.one("And", b.one("IsNaN", rows), b.const(np.isnan(keys))))
    return same


def found_at(b: Any, x: Value, keys: Array, nan: bool = True) -> Value:
    """For every element the number of the first key that it is equal to, or how many keys there are"""
    shape = string_shape(x.type)
    always = b.const(np.ones((*shape, 1), bool))
    every = b.emit("Concat", [same_as_keys(b, x, keys, nan), always], {"axis": len(shape)})[0]
    counted = b.one("Cast", every, to=DType.U8)
    at: Value = b.one("ArgMax", counted, axis=len(shape), keepdims=0, select_last_index=0)
    return at


def named(b: Any, n: Any, table: Array, at: Value) -> Value:
    """Strings or numbers by their place in a table"""
    if table.dtype == object:
        return picked(b, b.const(to_chars(table, "the values")), at)
    return read_as(b, n, "Gather", [b.const(table), at], axis=0)


def looked_up(b: Any, n: Any, x: Value, keys: Array, values: Array, default: Array) -> Value:
    """`values` by `keys`; of a key that is there twice the last counts."""
    names = list(keys.tolist() if keys.dtype == object else map(_name, keys.tolist()))
    last = {k: i for i, k in enumerate(names)}
    keep = sorted(last.values())
    keys, values = keys[keep], np.concatenate([values[keep], default.reshape(1)])
    if not keep:
        n.fail("has no keys")
    return named(b, n, values, found_at(b, x, keys, nan=n.opset >= 4))


def _name(x: Any) -> Any:
    return "nan" if x != x else x


class LabelEncoder(OpDef):
    """keys_* and values_*: strings, int64s, floats or a tensor; default_* is for what is no key. NaN is a key from
    version 4 on."""

    name = "LabelEncoder"
    domain = "ai.onnx.ml"
    strings = "own"
    DEFAULTS = {"strings": np.array("_Unused", object), "int64s": np.array(-1), "floats": np.array(-0.0, np.float32)}

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        if n.opset < 2:
            return self.by_place(b, n)
        keys, _ = self.listed(n, "keys")
        values, kind = self.listed(n, "values")
        x = n.inputs[0]
        if len(keys) != len(values):
            n.fail(f"has {len(keys)} keys and {len(values)} values")
        if (keys.dtype == object) != (x.dtype is CHAR) or (keys.dtype != object and keys.dtype != x.dtype.numpy):
            n.fail(f"has keys of the type {keys.dtype} for {x.type}")
        return [looked_up(b, n, x, keys, values, self.default(n, kind, values))]

    def by_place(self, b: Any, n: Any) -> Sequence[Value | None]:
        """In version 1 strings stand for their places in a list, and places for strings."""
        words, x = np.array(n.attrs.get("classes_strings", []), object), n.inputs[0]
        places = np.arange(len(words))
        if x.dtype is CHAR:
            return [looked_up(b, n, x, words, places, np.array(n.attrs.get("default_int64", -1)))]
        default = np.array(n.attrs.get("default_string", "_Unused"), object)
        return [looked_up(b, n, x, places, words, default)]

    def listed(self, n: Any, what: str) -> tuple[Array, str]:
        given = [k for k in ("strings", "int64s", "floats", "tensor") if f"{what}_{k}" in n.attrs]
        if len(given) != 1:
            n.fail(f"needs one of `{what}_strings`, `{what}_int64s`, `{what}_floats` and `{what}_tensor`")
        kind, x = given[0], n.attrs[f"{what}_{given[0]}"]
        if kind == "tensor":
            return (to_text(x) if x.dtype == "S1" else x).reshape(-1), kind
        return np.array(x, {"strings": object, "int64s": np.int64, "floats": np.float32}[kind]), kind

    def default(self, n: Any, kind: str, values: Array) -> Array:
        """A tensor's default is by its type: the same as that of a list of it"""
        if kind == "tensor" and "default_tensor" in n.attrs:
            x = n.attrs["default_tensor"]
            return np.asarray(to_text(x) if x.dtype == "S1" else x.astype(values.dtype))
        if kind == "tensor":
            kind = "strings" if values.dtype == object else "int64s" if values.dtype.kind in "iu" else "floats"
        given = n.attrs.get(f"default_{kind.removesuffix('s')}")
        return self.DEFAULTS[kind].astype(values.dtype) if given is None else np.array(given, values.dtype)


class CategoryMapper(OpDef):
    """Strings to numbers or numbers to strings, as its input is"""

    name = "CategoryMapper"
    domain = "ai.onnx.ml"
    strings = "own"

    def from_onnx(self, b: Any, n: Any) -> Sequence[Value | None]:
        words = np.array(n.attrs.get("cats_strings", []), object)
        numbers = np.array(n.attrs.get("cats_int64s", []), np.int64)
        x = n.inputs[0]
        if len(words) != len(numbers):
            n.fail(f"has {len(words)} strings for {len(numbers)} numbers")
        if x.dtype is CHAR:
            return [looked_up(b, n, x, words, numbers, np.array(n.attrs.get("default_int64", -1)))]
        default = np.array(n.attrs.get("default_string", "_Unused"), object)
        return [looked_up(b, n, x, numbers, words, default)]
