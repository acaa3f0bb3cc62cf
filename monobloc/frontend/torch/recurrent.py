"""Recurrent layers as ONNX's: the same steps, with the gates in another order."""

from __future__ import annotations

from typing import Any

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.ir.graph import Value
from monobloc.ir.types import DType

# where each gate of ONNX's stands among PyTorch's: i, o, f, c in i, f, g, o; z, r, h in r, z, n
ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def layers(op: str, activation: str = "") -> Reader:
    def read(n: AtenNode) -> Results:
        if "batch_sizes" in n.args:
            n.unsupported("a packed sequence")
        x, starts = n.x("input"), [n["hx"]] if isinstance(n["hx"], Value) else n["hx"]
        params, dirs = n.values("params"), 2 if n["bidirectional"] else 1
        per = len(params) // (n["num_layers"] * dirs)  # of weights and biases; and, if it is odd, a projection
        if n["train"] and n["dropout"]:
            n.unsupported("dropout in training, which draws random numbers,")
        one = x.type.rank == 2
        if n.get("batch_first") and not one:
            x = n.swap(x, 0, 1)
        ends: list[list[Value]] = [[] for _ in starts]
        for k in range(n["num_layers"]):
            own = params[k * dirs * per : (k + 1) * dirs * per]
            first = [n.cut(s, 0, k * dirs, dirs) for s in starts]
            x, last = projected(n, x, own, first, per) if per % 2 else layer(n, op, x, own, first, per, activation)
            for e, v in zip(ends, last, strict=True):
                e.append(v)
        finals = [n.b.emit("Concat", e, {"axis": 0})[0] if len(e) > 1 else e[0] for e in ends]
        return [n.swap(x, 0, 1) if n.get("batch_first") and not one else x, *finals]

    return read


def layer(n: AtenNode, op: str, x: Value, params: list[Value], first: list[Value], per: int,
          activation: str) -> tuple[Value, list[Value]]:
    """One layer in all its directions: (the sequence [steps, batch, dirs * hidden], the states it ends in)"""
    groups = [params[k : k + per] for k in range(0, len(params), per)]
    hidden = groups[0][1].shape[-1]
    w, r = (stacked(n, [gates(n, op, g[k], hidden) for g in groups]) for k in range(2))
    bias = None
    if per == 4:
        rows = [n.b.emit("Concat", [gates(n, op, g[k], hidden) for k in (2, 3)], {"axis": 0})[0] for g in groups]
        bias = stacked(n, rows)
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": "bidirectional" if len(groups) == 2 else "forward"}
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    if activation:
        attrs["activations"] = [activation] * len(groups)
    y, *last = n.onnx(op, x, w, r, bias, None, *first, outputs=1 + len(first), **attrs)
    steps, dirs, batch, size = y.shape
    return n.reshape(n.transpose(y, [0, 2, 1, 3]), [steps, batch, dirs * size]), last


def projected(n: AtenNode, x: Value, params: list[Value], first: list[Value], per: int
              ) -> tuple[Value, list[Value]]:
    """The same of an LSTM whose state is projected: gates stand in PyTorch's own order"""
    if x.dtype is not DType.F32:
        n.unsupported(f"LSTM of {x.dtype.value} with projections")
    x, outs, ends = n.swap(x, 0, 1), [], []
    for k in range(len(params) // per):
        own, (h, c) = params[k * per : (k + 1) * per], [n.cut(s, 0, k, 1) for s in first]
        sums = n.one("MatMul", turned(n, x) if k else x, n.transpose(own[0], [1, 0]))
        for bias in own[2:-1]:
            sums = n.one("Add", sums, bias)
        starts = [n.reshape(v, v.shape[1:]) for v in (h, c)]
        attrs = {"act": "tanh", "clip": 0.0, "cut": 0.0, "asymmetric": 0, "coupled": 0, "scales": [1.0] * 5}
        y, *last = n.b.emit("TflLstmFull", [sums, own[1], *starts, None, None, own[-1], None], attrs, 3)
        outs.append(turned(n, y) if k else y)
        ends.append([n.reshape(v, [1, *v.shape]) for v in last])
    y = n.b.emit("Concat", outs, {"axis": 2})[0] if len(outs) > 1 else outs[0]
    pairs = [n.b.emit("Concat", list(v), {"axis": 0})[0] if len(v) > 1 else v[0] for v in zip(*ends, strict=True)]
    return n.swap(y, 0, 1), pairs


def turned(n: AtenNode, x: Value) -> Value:
    """The sequence [batch, steps, k] from its end"""
    return n.cut(x, 1, x.shape[1] - 1, x.shape[1], -1)


def gates(n: AtenNode, op: str, v: Value, hidden: int) -> Value:
    """Rows of all gates in ONNX's order"""
    order = ORDER[op]
    if len(order) == 1:
        return v
    return n.b.emit("Concat", [n.cut(v, 0, k * hidden, hidden) for k in order], {"axis": 0})[0]


def stacked(n: AtenNode, values: list[Value]) -> Value:
    wide = [n.reshape(v, [1, *v.shape]) for v in values]
    return n.b.emit("Concat", wide, {"axis": 0})[0] if len(wide) > 1 else wide[0]


READERS: dict[str, Reader] = {
    "lstm.input": layers("LSTM"), "gru.input": layers("GRU"), "rnn_tanh.input": layers("RNN", "Tanh"),
    "rnn_relu.input": layers("RNN", "Relu"),
}  # fmt: skip
