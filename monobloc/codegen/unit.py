"""A placed graph as C files: one function per layer, partitions that compile in parallel.

Layers are `static noinline` functions named after their node, so a symbol, a debug frame and a profile
entry is a layer. Each partition file has one hidden function that runs its layers in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monobloc.codegen import foreign
from monobloc.codegen.contraction import KERNEL, Places, contraction_text
from monobloc.codegen.loops import LoopContext, Writer, emit_outputs
from monobloc.codegen.names import comment, mangle
from monobloc.codegen.place import Placement
from monobloc.codegen.storage import Storage, dense
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.text import print_graph
from monobloc.ops import opdef
from monobloc.passes.contraction import is_contraction, parts
from monobloc.targets import Target

NODES_PER_PART = 48
WORK_FOR_THREADS = 30_000  # scalar operations below which waking a thread costs more than it gives

HEADERS = ("base", "math", "scalar", "gemm", "conv", "conv_nchw", "dwconv", "recurrent", "abi", "hal")


@dataclass(frozen=True)
class Unit:
    """C files of one program: name -> text, in the order their parts run."""

    prefix: str
    files: dict[str, str]
    parts: tuple[str, ...]  # hidden functions, in order
    listing: str  # what #line refers to
    weights: dict[str, Value]  # symbol -> constant
    layers: tuple[tuple[str, ...], ...] = ()  # per part, the nodes that run, in order


@dataclass
class RoutineContext:
    """What an op's own C may ask for; `scratch` adds up what it asked."""

    pointer_of: Callable[[Value], str]
    target: Target
    scratch_base: str = "0"
    used: int = 0
    exported: frozenset[Value] = frozenset()

    def spent(self, v: Value) -> bool:
        """Whether the node that reads `v` may write over it: memory of its own, and no other reader."""
        while v.producer is not None and len(v.users) == 1 and v not in self.exported:
            if v.producer.op != "Reshape":
                return is_contraction(v.producer)
            source = v.producer.inputs[0]
            assert source is not None
            v = source
        return False

    def ptr(self, v: Value) -> str:
        return self.pointer_of(v)

    def scratch(self, nbytes: int) -> str:
        at = self.used
        self.used += -(-nbytes // 64) * 64
        return f"({self.scratch_base} + {at})"


def scratch_bytes(g: Graph, t: Target, threads: int) -> dict[Node, int]:
    """Scratch of every node, for all threads."""
    out: dict[Node, int] = {}
    exported = frozenset(g.output_values)
    for node in g.nodes:
        if is_contraction(node):
            floats = node.attrs.get("scratch", 0)
            if floats:
                out[node] = 4 * floats * threads
        elif node.op != "Fused" and opdef(node).has_routine:
            c = RoutineContext(lambda v: "p", t, exported=exported)
            opdef(node).routine(node, c)  # type: ignore[attr-defined]
            if c.used:
                out[node] = c.used
    return out


def weight_symbol(v: Value) -> str:
    assert v.const is not None
    return f"mb_w_{v.const.key}"


@dataclass
class _Layer:
    node: Node
    name: str
    definitions: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    errors: bool = False
    parallel: bool = False


class UnitWriter:
    """Makes the C of one placed graph."""

    def __init__(
        self, g: Graph, p: Placement, t: Target, prefix: str, threads: int, profile: bool = False
    ) -> None:
        self.g, self.p, self.t, self.prefix, self.threads = g, p, t, prefix, threads
        self.profile = profile
        self.weights: dict[str, Value] = {}
        self.kernels: dict[str, str] = {}  # of the file being written: definitions -> name
        self.listing = print_graph(g)
        self.lines = _listing_lines(self.listing)

    # -- values --
    def storage_of(self, v: Value) -> Storage:
        return dense(weight_symbol(v), v.type) if v.const is not None else self.p.storage[v]

    def _base(self, v: Value, used: dict[Value, str], write: bool) -> str:
        if v not in used:
            used[v] = f"{'y' if write else 'x'}{len(used)}"
        return used[v]

    def pointer_text(self, v: Value, const: bool) -> str:
        """Typed pointer to a value's base, written out."""
        kind = f"const {v.dtype.c} *" if const else f"{v.dtype.c} *"
        if v.const is not None:
            symbol = weight_symbol(v)
            self.weights[symbol] = v
            return f"(({kind}){symbol})"
        base = self.p.offset[int(self.p.storage[v].base)]
        return f"(({kind})({self.address(base)}))"

    def address(self, offset: int) -> str:
        """Where a byte of the plan lies: a bank of the run's memory and a distance."""
        bank = self.p.bank_at(offset)
        return f"{bank.pointer} + {offset - bank.start}"

    # -- layers --
    def layer(self, node: Node) -> _Layer:
        out = _Layer(node, mangle(node.name))
        if is_contraction(node):
            self._contraction(node, out)
        elif node.op != "Fused" and opdef(node).has_routine:
            self._routine(node, out)
        else:
            self._loops(node, out)
        splits = not _is_routine(node) or bool(node.attrs.get("splits", opdef(node).splits))
        out.parallel = self.threads > 1 and _work(node) >= WORK_FOR_THREADS and splits
        return out

    def _contraction(self, node: Node, out: _Layer) -> None:
        scratch = f"(float *)({self.address(self.p.scratch[node])})" if node in self.p.scratch else "0"
        outs = set(node.outputs)
        at = Places(self.storage_of, lambda v: self.pointer_text(v, v not in outs), scratch)
        text = contraction_text(parts(node), self.t, at)
        key = "\n".join(text.definitions)
        known = key in self.kernels
        name = self.kernels.setdefault(key, f"{text.family}{len(self.kernels)}")
        out.definitions = [] if known else [d.replace(KERNEL, name) for d in text.definitions]
        out.body = [b.replace(KERNEL, name) for b in text.body]

    def _routine(self, node: Node, out: _Layer) -> None:
        outs = set(node.outputs)

        def pointer(v: Value) -> str:
            s = self.storage_of(v)
            text = self.pointer_text(v, v not in outs)
            return f"({text} + {s.offset})" if s.offset else text

        base = self.address(self.p.scratch[node]) if node in self.p.scratch else "0"
        c = RoutineContext(pointer, self.t, base, exported=frozenset(self.g.output_values))
        out.body = opdef(node).routine(node, c).splitlines()  # type: ignore[attr-defined]
        if self.threads > 1:
            out.body.insert(0, "(void)nt;")

    def _loops(self, node: Node, out: _Layer) -> None:
        used: dict[Value, str] = {}
        outs = set(node.outputs)
        w = Writer()
        ctx = LoopContext(self.storage_of, lambda v: self._base(v, used, v in outs), self.threads, self.p.views)
        emit_outputs(node, ctx, w)
        body = "\n".join(w.lines)
        out.errors = "&bad" in body
        for v, name in used.items():
            const = "" if v in outs else "const "
            out.body.append(f"{const}{v.dtype.c} *const {name} = {self.pointer_text(v, v not in outs)};")
        if out.errors:
            out.body.append("int bad = 0;")
        out.body += [line.removeprefix("  ") for line in w.lines]
        if out.errors:
            out.body.append("if (bad) return MB_E_INDEX;")

    # -- files --
    def write(self) -> Unit:
        work = [n for n in self.p.order if n not in self.p.views and any(v.type.size for v in n.outputs)]
        chunks = [work[i : i + NODES_PER_PART] for i in range(0, len(work), NODES_PER_PART)] or [[]]
        files, names = {}, []
        for k, chunk in enumerate(chunks):
            names.append(f"mb_{self.prefix}_part{k}")
            self.kernels = {}
            files[f"{self.prefix}.{k}.c"] = self._file(names[-1], [self.layer(n) for n in chunk])
        layers = tuple(tuple(n.name for n in chunk) for chunk in chunks)
        return Unit(self.prefix, files, tuple(names), self.listing, dict(self.weights), layers)

    def _file(self, part: str, layers: Sequence[_Layer]) -> str:
        out = [f'#include "mb/{h}.h"' for h in HEADERS]
        out += foreign.declarations(layer.node for layer in layers)
        out.append("#define MB_LAYER static __attribute__((noinline))")
        text = "\n".join(line for layer in layers for line in (*layer.definitions, *layer.body))
        out += [_extern(s, v) for s, v in self.weights.items() if s in text]
        for layer in layers:
            out += ["", *self._function(layer)]
        if self.profile:
            out.append(f"MB_EXPORT unsigned long long {part}_ticks[{max(len(layers), 1)}];")
        out += ["", f"MB_HIDDEN int {part}(mb_mem mem) {{", "  int e = 0; (void)e; (void)mem;"]
        for k, layer in enumerate(layers):
            call = f"mb_parallel_for(layer_{layer.name}, mem)" if layer.parallel else f"layer_{layer.name}(mem, 0, 1)"
            if self.profile:
                call = f"{call}, {part}_ticks[{k}] += __builtin_readcyclecounter() - t{k}, e"
                out.append(f"  const unsigned long long t{k} = __builtin_readcyclecounter();")
                out.append(f"  if ((e = {call})) return e;")
            else:
                out.append(f"  if ((e = {call})) return e;")
        out += ["  return 0;", "}", ""]
        return "\n".join(out)

    def _function(self, layer: _Layer) -> list[str]:
        n = layer.node
        ops = " + ".join(m.op for m in n.body.nodes) if n.body is not None else n.op
        types = ", ".join(str(v.type) for v in n.outputs)
        out = [f"/* {comment(n.name)}: {ops} -> {types} */", *layer.definitions]
        line = self.lines.get(n.name)
        if line:
            out.append(f'#line {line} "{self.prefix}.mb"')
        out.append(f"MB_LAYER int layer_{layer.name}(mb_mem mem, int tid, int nt) {{")
        out.append("  (void)mem; (void)tid; (void)nt;")
        out += [f"  char *const {bank.pointer} = mem[{k}];" for k, bank in enumerate(self.p.banks)
                if any(f"{bank.pointer} + " in b for b in layer.body)]
        out += [f"  {b}" for b in layer.body]
        out += ["  return 0;", "}"]
        return out


def _is_routine(node: Node) -> bool:
    return node.op != "Fused" and opdef(node).has_routine


def _extern(symbol: str, v: Value) -> str:
    return f"extern MB_HIDDEN const {v.dtype.c} {symbol}[{max(v.type.size, 1)}];"


def _work(node: Node) -> int:
    """Rough number of scalar operations."""
    if is_contraction(node):
        c = parts(node)
        k = c.x.shape[-1] if c.root.op == "MatMul" else c.root.inputs[1].type.size // max(c.out.shape[1], 1)  # type: ignore
        return c.out.type.size * k
    size = max((v.type.size for v in [*node.used, *node.outputs]), default=0)
    return size * (len(node.body.nodes) * 4 if node.body is not None else 4)


def _listing_lines(listing: str) -> Mapping[str, int]:
    """Line of each top-level node of the listing, by the name at its end."""
    import json

    out: dict[str, int] = {}
    for k, line in enumerate(listing.splitlines(), 1):
        if line.endswith('"') and " = " in line:
            at = line.rfind(' "')
            try:
                out.setdefault(json.loads(line[at + 1 :]), k)
            except ValueError:
                continue
    return out


