"""The one text form of a graph (`.mb`): dumps, tests, objects and bug reports use it, and it parses back.

    graph "mnist" {
      dim "batch" "1,4,8" = 4
      in %x : f32[1,1,28,28]
      in %h : f32[1,64] as "state" state "state_out"
      const %w : f32[8,1,5,5] = @0123456789abcdef0123456789abcdef
      const %k : i64[2] = [1, -1]
      %y : f32[1,8,28,28] = Conv(%x, %w, _) {group=1, pads=[2, 2, 2, 2]} "conv1" from("Conv_0")
      %z : f32[1,8,28,28] = Fused(%y) {body={ in %a : ... }} "relu1"
      out "z" = %z
    }

Constants of at most INLINE elements are written out; larger ones are named by content (`Const.key`)
and their data live elsewhere: in an object's sections, or in a dump's `weights/` folder.

`dim` lines are the dimensions that a run chooses, with this graph's sizes of them. Versions of one program
stand one behind the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn, cast

import numpy as np

from monobloc.errors import ModelError
from monobloc.ir.dims import Dim, parse_sizes
from monobloc.ir.graph import Const, Graph, Node, Value, space_of
from monobloc.ir.symbolic import Space, integers, is_open, parse_size
from monobloc.ir.types import DType, TensorType, parse_type

INLINE = 64
_PLAIN = re.compile(r"[A-Za-z0-9_.]+\Z")


# -- printing -----------------------------------------------------------------------------------------
def print_graph(g: Graph, indent: str = "") -> str:
    """The text of a graph; the same graph always gives the same text."""
    pad = indent + "  "
    lines = [f"{indent}graph {_quote(g.name)} {{"]
    lines += [f"{pad}dim {_quote(d.name)} {_quote(str(d))} = {g.at.get(d.name, 'open')}" for d in g.dims]
    lines += [f"{pad}when {_quote(c)}" for c in (g.space.said if g.space else ())]
    lines += [f"{pad}in {_name(v)} : {v.type}{_origin(v)}{_state(v)}" for v in g.inputs]
    lines += [f"{pad}const {_name(v)} : {v.type} = {_const(v)}" for v in g.constants()]
    lines += [_node(n, pad) for n in g.nodes]
    lines += [f"{pad}out {_quote(n)} = {_name(v)}" for n, v in g.outputs]
    return "\n".join([*lines, indent + "}"])


def _quote(s: str) -> str:
    return json.dumps(s, ensure_ascii=True)


def _name(v: Value | None) -> str:
    if v is None:
        return "_"
    return "%" + (v.name if _PLAIN.match(v.name) else _quote(v.name))


def _origin(v: Value) -> str:
    return "" if v.origin in ("", v.name) else f" as {_quote(v.origin)}"


def _state(v: Value) -> str:
    return f" state {_quote(v.state)}" if v.state else ""


def is_inline(v: Value) -> bool:
    return v.type.size <= INLINE


def _const(v: Value) -> str:
    assert v.const is not None
    if not is_inline(v):
        return "@" + v.const.key
    codes = v.dtype.codes(v.const.array)
    if codes.dtype.kind in "fiu" and codes.dtype.isbuiltin == 1:  # Python's numbers: the same text, of all at once
        return str(codes.ravel().tolist())
    return "[" + ", ".join(map(_scalar, codes.ravel().tolist())) + "]"


def _scalar(x: Any) -> str:
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, float):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(str(x), repr(x))
    return str(x)


def _attr(x: Any, pad: str) -> str:
    if isinstance(x, Graph):
        return "{\n" + print_graph(x, pad + "  ") + "\n" + pad + "}"
    if isinstance(x, (bool, float, int, np.integer, np.floating)):
        return _scalar(x.item() if isinstance(x, np.generic) else x)
    if is_open(x):
        return str(x)
    if isinstance(x, str):
        return _quote(x)
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(_attr(i, pad) for i in x) + "]"
    if isinstance(x, DType):
        return x.value
    if x is None:
        return "none"
    raise TypeError(f"attribute {x!r} has no text form")


def _node(n: Node, pad: str) -> str:
    outs = ", ".join(f"{_name(v)} : {v.type}{_origin(v)}" for v in n.outputs)
    ins = ", ".join(_name(v) for v in n.inputs)
    attrs = ", ".join(f"{k}={_attr(v, pad)}" for k, v in sorted(n.attrs.items()))
    tail = f" {{{attrs}}}" if attrs else ""
    if n.locs:
        tail += f" from({', '.join(map(_quote, n.locs))})"
    return f"{pad}{outs} = {n.op}({ins}){tail} {_quote(n.name)}"


# -- parsing ------------------------------------------------------------------------------------------
_DTYPES = "|".join(sorted((d.value for d in DType), key=len, reverse=True))
_KIND = f"(?:{_DTYPES})(?:/(?:{_DTYPES}))?"
_TOKEN = re.compile(
    r'\s*(?:(?P<str>"(?:[^"\\]|\\.)*")|(?P<type>' + _KIND + r"\[[\w,+*/()\-]*\](?:\{[\d,]+\})?)"
    r"|(?P<size>\([\w+*/()\-]*\bdim\d+[\w+*/()\-]*\))"
    r"|(?P<val>%[A-Za-z0-9_.]+|%(?=\"))|(?P<key>@[0-9a-f]{32})"
    r"|(?P<num>-?(?:inf\b|nan\b|\d[\d.]*(?:e[-+]?\d+)?))|(?P<word>[A-Za-z_][\w.]*)|(?P<sym>[{}()\[\]=:,]))"
)
ConstSource = Callable[[str, TensorType], Const]
MakeSpace = Callable[[Graph], Space | None]


def parse_graph(text: str, weights: ConstSource | None = None, make_space: MakeSpace = space_of) -> Graph:
    """Graph of a text; ModelError names the place. `weights(key, type)` finds large constants, `make_space` says
    for which sizes the graph is to be, where its text leaves some open."""
    found = parse_graphs(text, weights, make_space)
    if len(found) != 1:
        raise ModelError(f".mb text holds {len(found)} versions of a graph, one is expected")
    return found[0]


def parse_graphs(
    text: str, weights: ConstSource | None = None, make_space: MakeSpace = space_of
) -> list[Graph]:
    """All versions of a program; see `parse_graph`."""
    p = _Parser(text, weights, make_space)
    try:
        out = [p.graph()]
        while p.tok:
            out.append(p.graph())
    except (ValueError, TypeError, OverflowError, RecursionError) as e:  # numbers, strings and types that are none
        return p.fail(f"{e}")
    return out


def copy_graph(g: Graph, make_space: MakeSpace = space_of) -> Graph:
    """An equal graph that shares the constants, regions' too; equal bytes may be tensors of several types."""
    table = {(v.const.key, v.type): v.const for part in g.tree() for v in part.constants() if v.const is not None}
    return parse_graph(print_graph(g), lambda key, t: table[key, t], make_space)


class _Parser:
    def __init__(self, text: str, weights: ConstSource | None, make_space: MakeSpace) -> None:
        self.text, self.at, self.weights = text, 0, weights
        self.make_space, self.space = make_space, cast(Space | None, None)
        self.kind = self.tok = ""
        self.step()

    def step(self) -> str:
        old = self.tok
        m = _TOKEN.match(self.text, self.at)
        if m is None:
            if self.text[self.at :].strip():
                self.fail("an unknown character")
            self.kind = self.tok = ""
        else:
            self.kind, self.tok, self.at = str(m.lastgroup), m.group(m.lastgroup or 0), m.end()
        return old

    def fail(self, what: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        raise ModelError(f".mb text line {line}: {what} at {self.tok!r}")

    def take(self, tok: str) -> None:
        if self.tok != tok:
            self.fail(f"expected {tok!r}")
        self.step()

    def maybe(self, tok: str) -> bool:
        if self.tok == tok and self.kind != "str":
            self.step()
            return True
        return False

    def string(self) -> str:
        if self.kind != "str":
            self.fail("expected a string")
        return str(json.loads(self.step()))

    def value_name(self) -> str:
        if self.kind != "val":
            self.fail("expected a value")
        tok = self.step()
        return self.string() if tok == "%" else tok[1:]

    def type(self) -> TensorType:
        if self.kind != "type":
            self.fail("expected a type")
        try:
            t = parse_type(self.tok, self.space)
        except ValueError as e:
            self.fail(str(e))
        self.step()
        return t

    def graph(self, within: Graph | None = None) -> Graph:
        self.take("graph")
        g = Graph(self.string(), within)
        env: dict[str, Value] = {}
        self.take("{")
        while not self.maybe("}"):
            if self.kind == "word" and self.tok in ("dim", "when", "in", "const", "out"):
                getattr(self, "_" + self.step())(g, env)
            else:
                self._node(g, env)
        return g

    def _define(self, g: Graph, env: dict[str, Value]) -> Value:
        name = self.value_name()
        self.take(":")
        t = self.type()
        origin = self.string() if self.maybe("as") else ""
        if name in env:
            self.fail(f"%{name} is defined twice")
        env[name] = g.value(name, t, origin)
        return env[name]

    def _dim(self, g: Graph, env: dict[str, Value]) -> None:
        name, text = self.string(), self.string()
        sizes = parse_sizes(text)
        if not isinstance(sizes, tuple):
            self.fail(f"{text!r} are no sizes of a dimension")
        self.take("=")
        g.dims = (*g.dims, Dim(name, sizes))
        if not self.maybe("open"):
            g.at[name] = int(self.step())
        self.space = g.space = self.make_space(g)

    def _when(self, g: Graph, env: dict[str, Value]) -> None:
        assert g.space is not None
        g.space.restrict(self.string())

    def _in(self, g: Graph, env: dict[str, Value]) -> None:
        v = self._define(g, env)
        v.state = self.string() if self.maybe("state") else ""
        g.inputs.append(v)

    def _const(self, g: Graph, env: dict[str, Value]) -> None:
        v = self._define(g, env)
        self.take("=")
        if self.kind == "key":
            key = self.step()[1:]
            if self.weights is None:
                self.fail("no source of constants was given")
            assert self.weights is not None
            v.const = self.weights(key, v.type)
        else:
            data = integers(self.attr(), np.uint8 if v.dtype.is_opaque else v.dtype.numpy)
            data = data.view(v.dtype.numpy) if v.dtype.is_opaque else data
            if data.size != v.type.size:
                self.fail(f"%{v.name} has {data.size} elements for {v.type}")
            v.const = Const(data.reshape(v.shape))

    def _out(self, g: Graph, env: dict[str, Value]) -> None:
        name = self.string()
        self.take("=")
        g.outputs.append((name, self._use(env)))

    def _use(self, env: dict[str, Value]) -> Value:
        name = self.value_name()
        if name not in env:
            self.fail(f"%{name} is used before it is defined")
        return env[name]

    def _node(self, g: Graph, env: dict[str, Value]) -> None:
        outs = [self._define(g, env)]
        while self.maybe(","):
            outs.append(self._define(g, env))
        self.take("=")
        op = self.step()
        ins = self._list("(", ")", lambda: None if self.maybe("_") else self._use(env))
        attrs: dict[str, Any] = {}
        if self.tok == "{":
            attrs = dict(self._list("{", "}", lambda: self._pair(g)))
        locs = tuple(self._list("(", ")", self.string)) if self.maybe("from") else ()
        node = Node(op, g.unique("n:" + self.string())[2:], ins, outs, attrs, locs)
        for v in outs:
            v.producer = node
        for v in node.used:
            v.users.append(node)
        g.nodes.append(node)

    def _pair(self, g: Graph) -> tuple[str, Any]:
        key = self.step()
        self.take("=")
        return key, self.attr(None if key == "body" else g)

    def _list(self, left: str, right: str, item: Callable[[], Any]) -> list[Any]:
        self.take(left)
        out: list[Any] = []
        while not self.maybe(right):
            if out:
                self.take(",")
            out.append(item())
        return out

    def attr(self, within: Graph | None = None) -> Any:
        if self.kind == "str":
            return self.string()
        if self.tok == "[":
            return self._list("[", "]", self.attr)
        if self.tok == "{":
            self.step()
            g = self.graph(within)
            self.take("}")
            return g
        if self.kind == "size":
            return parse_size(self.step(), self.space)
        if self.kind == "num":
            tok = self.step()
            return int(tok) if re.fullmatch(r"-?\d+", tok) else float(tok)
        words: dict[str, Any] = {"true": True, "false": False, "none": None, "nan": float("nan"), "inf": float("inf")}
        if self.tok in words:
            return words[self.step()]
        if self.kind == "word" and self.tok in (d.value for d in DType):
            return DType(self.step())
        return self.fail("expected an attribute")
