"""Epilogues: the elementwise tail of a contraction as one expression on the accumulators.

The text is the same for whole vectors and for single elements; `mb_*` functions are overloaded. An
operand is loaded along the lanes (channels, or pixels of a row): a vector where its stride there is 1,
a broadcast where it is 0. Halves are float here, and rounded where they are stored or a Cast says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from monobloc.codegen.scalars import literal
from monobloc.codegen.storage import Storage
from monobloc.ir.expr import I64, Expr, Fn, Load, Num, Op, Var, children, linear
from monobloc.ir.graph import Graph, Value
from monobloc.ir.types import DType
from monobloc.ops.compose import node_functions, reader

ACC = Op("accumulator", (), DType.F32)
ACC_INT = Op("accumulator", (), DType.I32)


@dataclass(frozen=True)
class Axes:
    """How the output's axes follow from the kernel's `ix`: per logical axis a C text, and the one that
    runs along vectors."""

    vars: tuple[Expr, ...]
    text: dict[Var, str]
    lane: Var | None  # the axis along which vectors lie
    rows: tuple[Var, ...] = ()  # axes that `ix.j` counts together, outermost first
    lane_text: str = "ix.n"
    row_text: str = "ix.j"


def epilogue_expr(body: Graph | None, at: tuple[Expr, ...], outer: dict[Value, Value]) -> Expr:
    """The group's result at an index, with the contraction's own value as ACC and Loads of outer values."""
    if body is None:
        return ACC
    root = body.nodes[0]
    acc = ACC if root.outputs[0].dtype.is_float else ACC_INT
    env: dict[Value, Fn] = {root.outputs[0]: lambda *_: acc}
    for v in body.inputs:
        env[v] = reader(outer[v])
    for n in body.nodes[1:]:
        for v, f in zip(n.outputs, node_functions(n, lambda v: env.get(v) or reader(v)), strict=True):
            env[v] = f
    return env[body.outputs[0][1]](*at)


def epilogue_text(
    e: Expr, axes: Axes, storage_of: Callable[[Value], Storage], pointer_of: Callable[[Value], str]
) -> tuple[list[str], str]:
    """C statements and the final expression; `acc`, `ix` and `ram` are in scope."""
    p = _Printer(axes, storage_of, pointer_of)
    p.count(e)
    return p.lines, p.text(e)


class _Printer:
    def __init__(
        self, axes: Axes, storage_of: Callable[[Value], Storage], pointer_of: Callable[[Value], str]
    ) -> None:
        self.axes, self.storage_of, self.pointer_of = axes, storage_of, pointer_of
        self.uses: dict[Expr, int] = {}
        self.names: dict[Expr, str] = {ACC: "acc", ACC_INT: "acc"}
        self.lines: list[str] = []

    def count(self, e: Expr) -> None:
        self.uses[e] = self.uses.get(e, 0) + 1
        if self.uses[e] == 1 and not isinstance(e, Load):
            for c in children(e):
                self.count(c)

    def text(self, e: Expr) -> str:
        if e in self.names:
            return self.names[e]
        if isinstance(e, Num):
            return literal(e.value, e.dtype)
        text = self._load(e) if isinstance(e, Load) else self._call(e)
        if self.uses.get(e, 0) > 1:
            name = f"t{len(self.names)}"
            self.lines.append(f"const __auto_type {name} = {text};")
            self.names[e] = name
            return name
        return text

    def _call(self, e: Expr) -> str:
        assert isinstance(e, Op)
        if e.fn == "unrounded":
            return self.text(e.args[0])
        if e.fn == "cast":
            return self._cast(e)
        fn = {"land": "mb_and", "lor": "mb_or", "lnot": "mb_not"}.get(e.fn, f"mb_{e.fn}")
        return f"{fn}({', '.join(self.text(a) for a in e.args)})"

    def _cast(self, e: Op) -> str:
        """Between floats it rounds. In integer kernels integers are int32; a float that becomes one has been cut."""
        text, source = self.text(e.args[0]), e.args[0].dtype
        if source.is_float == e.dtype.is_float:
            return f"mb_round_{e.dtype.value}({text})" if e.dtype in (DType.F16, DType.BF16) else text
        return f"mb_float_of({text})" if e.dtype.is_float else f"mb_int_of({text})"

    def _load(self, e: Load) -> str:
        terms, const = linear(self.storage_of(e.source).address(e.index))
        step = terms.pop(self.axes.lane, 0) if self.axes.lane is not None else 0
        address = self._address(terms, const)
        pointer = self.pointer_of(e.source)
        if step == 0:
            return f"mb_splat(acc, {pointer}[{address}])"
        lane = self.axes.lane_text
        address = f"{address} + {lane}" if step == 1 else f"{address} + {lane} * {step}"
        address = address.removeprefix("0 + ")
        if step == 1:
            return f"mb_ld(acc, {pointer} + {address})"
        return f"mb_ld_strided(acc, {pointer} + {address}, {step})"

    def _address(self, terms: dict[Expr, int], const: int) -> str:
        parts = []
        joint = self._joint_rows(terms)
        if joint is not None:
            if joint:
                row = self.axes.row_text
                parts.append(f"{row} * {joint}" if joint != 1 else row)
            for counted in self.axes.rows:
                terms.pop(counted, None)
        for v, k in terms.items():
            assert isinstance(v, Var)
            parts.append(f"{self.axes.text[v]} * {k}" if k != 1 else self.axes.text[v])
        if const or not parts:
            parts.append(str(const))
        return " + ".join(parts)

    def _joint_rows(self, terms: dict[Expr, int]) -> int | None:
        """The step per row when the axes counted together lie as one."""
        rows = self.axes.rows
        if not rows:
            return None
        for a, b in zip(rows, rows[1:]):
            if terms.get(a, 0) != b.extent * terms.get(b, 0):
                return None
        return terms.get(rows[-1], 0)


def index_axes(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    return tuple(Num(0, I64) if d == 1 else Var(f"a{k}", d) for k, d in enumerate(shape))
