"""A placed graph as C files: one function per layer, partitions that compile in parallel.

Layers are `noinline` functions named after their node, so a symbol, a debug frame and a profile
entry is a layer. `partition.py` deals them out to files; one more function runs them in order. Texts
hold no more than what decides the code: weights go by name and not by content, so that new weights
compile nothing anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monobloc.codegen import foreign
from monobloc.codegen.contraction import KERNEL, Places, contraction_text
from monobloc.codegen.loops import LoopContext, Writer, emit_outputs
from monobloc.codegen.names import comment, file_name, mangle, scoped
from monobloc.codegen.partition import Item, divide
from monobloc.codegen.place import Placement
from monobloc.codegen.scalars import FLOAT_FNS, INT_FNS
from monobloc.codegen.storage import Storage, dense
from monobloc.ir.graph import Graph, Node, Value
from monobloc.ir.symbolic import guess, open_symbols, upper
from monobloc.ir.text import print_graph
from monobloc.ops import opdef
from monobloc.passes.contraction import is_contraction, parts
from monobloc.targets import Target

WORK_FOR_THREADS = 30_000  # scalar operations below which waking a thread costs more than it gives

HEADERS = ("base", "math", "scalar", "codes", "narrow", "epilogue", "gemm", "conv", "conv_nchw", "dwconv", "iconv",
           "idwconv", "recurrent", "qlstm", "nbits_panel", "turn", "trees", "exact", "inverse", "fourier", "tfl",
           "tflcell", "tflbox", "tflsignal", "delta", "grouped", "abi", "hal")
# Functions that base.h has for floats and scalar.h for integers: without doubles nothing needs math.h for them.
_PLAIN = frozenset(
    "mb_mem mb_vf mb_ix mb_ld mb_ld_strided mb_bcast mb_splat mb_add mb_sub mb_mul mb_div mb_lt mb_le mb_gt mb_ge "
    "mb_eq mb_ne mb_and mb_or mb_xor mb_not mb_select mb_relu mb_neg mb_abs mb_max mb_min mb_mac mb_fma mb_clip_lo "
    "mb_clip_hi mb_index mb_index_below mb_index_wrap mb_floordiv mb_floormod mb_min_long mb_max_long mb_share "
    "mb_lanes_sum mb_lanes_prod mb_lanes_max mb_lanes_min".split()
)
# Of math.h and those that are read with it: functions, and how names of conversions begin and end.
_COMMON = frozenset([*(f"mb_{f}" for f in FLOAT_FNS), *INT_FNS.values(),
                     *"mb_vi mb_bits_of mb_float_of mb_int_of".split()])  # fmt: skip
_CONVERSIONS = re.compile(r"mb_(cast_\w+|wide|b?f16|\w+_(value|code))")
# What names in the other headers begin with.
_NAMED = {
    "gemm": {"gemm"}, "conv": {"conv"}, "conv_nchw": {"nchw"}, "dwconv": {"dwconv", "dw"}, "iconv": {"iconv"},
    "idwconv": {"idwconv", "idw"}, "recurrent": {"rec"}, "qlstm": {"qlstm"}, "nbits_panel": {"nbits"},
    "turn": {"turn"}, "trees": {"trees", "tree"}, "exact": {"exact"},
    "inverse": {"inverse"}, "fourier": {"fourier"}, "delta": {"delta"}, "grouped": {"grouped"},
    **{h: {"tfl"} for h in HEADERS if h.startswith("tfl")},
}  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """C files of one program: name -> text, in the order their parts run."""

    prefix: str
    files: dict[str, str]
    parts: tuple[str, ...]  # hidden functions, in order
    listing: str  # what #line refers to
    weights: dict[str, Value]  # symbol -> constant
    layers: tuple[tuple[str, ...], ...] = ()  # per part, the nodes that run, in order
    file_of: Mapping[str, str] = field(default_factory=dict)  # a layer's node -> its file


@dataclass
class RoutineContext:
    """What an op's own C may ask for; `scratch` adds up what it asked."""

    pointer_of: Callable[[Value], str]
    target: Target
    scratch_base: str = "0"
    used: int = 0
    exported: frozenset[Value] = frozenset()
    calls_of: Callable[[Graph], str] = lambda _: ""
    threads: int = 1
    family: str = ""
    definitions: str = ""

    def region(self, g: Graph) -> str:
        """Statements that run a region's layers"""
        return self.calls_of(g)

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

    def scratch(self, nbytes: int, each: bool = False) -> str:
        """`each`: that many for every thread, one behind the other"""
        at = self.used
        self.used += -(-nbytes * (self.threads if each else 1) // 64) * 64
        return f"({self.scratch_base} + {at})"

    def kernel(self, header: str, definitions: str) -> str:
        """The name of functions that layers of one shape share; their definitions call it KERNEL."""
        self.family, self.definitions = header, definitions
        return KERNEL


def scratch_bytes(g: Graph, t: Target, threads: int) -> dict[Node, int]:
    """Scratch of every node, for all threads."""
    out: dict[Node, int] = {}
    exported = frozenset(v for part in g.tree() for v in part.output_values)
    for node in (n for part in g.tree() for n in part.nodes):
        if is_contraction(node):
            floats = node.attrs.get("scratch", 0)
            if floats:
                out[node] = 4 * floats * threads
        elif node.op != "Fused" and opdef(node).has_routine:
            c = RoutineContext(lambda v: "p", t, exported=exported, threads=threads)
            opdef(node).routine(node, c)  # type: ignore[attr-defined]
            if c.used:
                out[node] = upper(c.used)
    return out


def weight_symbols(g: Graph, prefix: str, by_content: bool) -> dict[str, str]:
    """The symbol of every constant, by its content: named after the first value that has it.

    `by_content`: objects name them by their content, since any linker merges equal ones by that.
    """
    out: dict[str, str] = {}
    for v in (v for part in g.tree() for v in part.constants()):
        assert v.const is not None
        key = v.const.key
        out.setdefault(key, f"mb_w_{key if by_content else scoped(prefix, mangle(v.name))}")
    return out


@dataclass
class _Layer:
    node: Node
    name: str  # of its function
    kernel: str = ""  # definitions that layers of one shape share
    family: str = ""
    body: list[str] = field(default_factory=list)
    weights: dict[str, Value] = field(default_factory=dict)
    errors: bool = False
    parallel: bool = False

    @property
    def fails(self) -> bool:
        """Whether it can return anything but MB_OK."""
        return any("return" in b for b in self.body)


class UnitWriter:
    """Makes the C of one placed graph."""

    def __init__(
        self, g: Graph, p: Placement, t: Target, prefix: str, threads: int, profile: bool = False,
        by_content: bool = False,
    ) -> None:
        self.g, self.p, self.t, self.prefix, self.threads = g, p, t, prefix, threads
        self.profile = profile
        self.symbols = weight_symbols(g, prefix, by_content)
        self.weights: dict[str, Value] = {}  # of the layer being written
        self.exported = frozenset(v for part in g.tree() for v in part.output_values)
        self.made: dict[Node, _Layer] = {}
        self.run_name = f"mb_{prefix}_part0"
        self.ticks: dict[str, int] = {}  # numbers of layers that are timed
        self.listing = print_graph(g)
        self.lines = _listing_lines(self.listing)

    # -- values --
    def storage_of(self, v: Value) -> Storage:
        return dense(self.symbols[v.const.key], v.type) if v.const is not None else self.p.storage[v]

    def _base(self, v: Value, used: dict[Value, str], write: bool) -> str:
        if v not in used:
            used[v] = f"{'y' if write else 'x'}{len(used)}"
        return used[v]

    def pointer_text(self, v: Value, const: bool) -> str:
        """Typed pointer to a value's base, written out."""
        kind = f"const {v.type.memory.c} *" if const else f"{v.type.memory.c} *"
        if v.const is not None:
            symbol = self.symbols[v.const.key]
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
        self.weights = {}
        out = _Layer(node, f"layer_{scoped(self.prefix, mangle(node.name))}", weights=self.weights)
        if is_contraction(node):
            self._contraction(node, out)
        elif node.op != "Fused" and opdef(node).has_routine:
            self._routine(node, out)
        else:
            self._loops(node, out)
        splits = not _is_routine(node) or bool(node.attrs.get("splits", opdef(node).splits))
        out.parallel = self.threads > 1 and not node.regions and _work(node) >= WORK_FOR_THREADS and splits
        return out

    def region(self, g: Graph) -> str:
        """Calls of a region's layers, which exist already"""
        return "\n".join(["int e = 0; (void)e;",
                          *self._calls([self.made[n] for n in self.p.inner[g] if n in self.made])])

    def _contraction(self, node: Node, out: _Layer) -> None:
        scratch = f"(float *)({self.address(self.p.scratch[node])})" if node in self.p.scratch else "0"
        outs = set(node.outputs)
        at = Places(self.storage_of, lambda v: self.pointer_text(v, v not in outs), scratch)
        text = contraction_text(parts(node), self.t, at)
        out.kernel, out.family = "\n".join(text.definitions), text.family
        out.body = text.body

    def _routine(self, node: Node, out: _Layer) -> None:
        outs = set(node.outputs)

        def pointer(v: Value) -> str:
            s = self.storage_of(v)
            text = self.pointer_text(v, v not in outs)
            return f"({text} + {s.offset})" if s.offset else text

        base = self.address(self.p.scratch[node]) if node in self.p.scratch else "0"
        c = RoutineContext(pointer, self.t, base, exported=self.exported, calls_of=self.region,
                           threads=self.threads)
        out.body = opdef(node).routine(node, c).splitlines()  # type: ignore[attr-defined]
        out.kernel, out.family = c.definitions, c.family
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
            out.body.append(f"{const}{v.type.memory.c} *const {name} = {self.pointer_text(v, v not in outs)};")
        if out.errors:
            out.body.append("int bad = 0;")
        out.body += [line.removeprefix("  ") for line in w.lines]
        if out.errors:
            out.body.append("if (bad) return MB_E_INDEX;")

    # -- files --
    def write(self) -> Unit:
        work = [n for n in self.p.steps() if n not in self.p.views and any(v.type.size for v in n.outputs)]
        layers = [self.layer(n) for n in work if not n.regions]
        self.made = {x.node: x for x in layers}
        self.ticks = {x.name: k for k, x in enumerate(layers)} if self.profile else {}
        control: list[_Layer] = []
        for n in reversed([n for n in work if n.regions]):  # those inside first
            control.append(self.layer(n))
            self.made[n] = control[-1]
        chunks = divide([Item(x.name, x.kernel) for x in layers])
        files: dict[str, str] = {}
        file_of: dict[str, str] = {}
        for chunk in chunks if len(chunks) > 1 else []:
            name = file_name(self.prefix, layers[chunk[0]].name, "c")
            files[name] = "\n".join([*self._layers([layers[k] for k in chunk], "MB_HIDDEN"), ""])
            file_of |= {layers[k].node.name: name for k in chunk}
        name = f"{self.prefix}.run.c"
        head = [f"MB_EXPORT unsigned long long {self.run_name}_ticks[{max(len(layers), 1)}];"] if self.profile else []
        if files:
            head = [*self._prototypes(layers), *head, *(self._functions(control, "static") if control else [])]
        else:
            head = [*self._layers([*layers, *control], "static", head)]
        steps = [self.made[n] for n in self.p.order if n in self.made]
        files[name] = "\n".join([*head, *self._run(steps), ""])
        file_of |= {x.node.name: name for x in (*layers, *control) if x.node.name not in file_of}
        weights = {s: v for x in (*layers, *control) for s, v in x.weights.items()}
        order = (tuple(x.node.name for x in layers),)
        return Unit(self.prefix, files, (self.run_name,), self.listing, weights, order, file_of)

    def _prototypes(self, layers: Sequence[_Layer]) -> list[str]:
        """What the file that runs the layers knows of those in other files."""
        return ['#include "mb/abi.h"', '#include "mb/hal.h"',
                *(f"MB_HIDDEN int {x.name}(mb_mem mem, int tid, int nt);" for x in layers)]

    def _layers(self, layers: Sequence[_Layer], linkage: str, head: Sequence[str] = ()) -> list[str]:
        """A file of layers, `head` behind what it includes"""
        includes = [f'#include "mb/{h}.h"' for h in _headers(layers)]
        return [*includes, *head, *foreign.declarations(x.node for x in layers), *self._functions(layers, linkage)]

    def _functions(self, layers: Sequence[_Layer], linkage: str) -> list[str]:
        """Layers, and once each what several of them share."""
        out = [f"#define MB_LAYER {linkage} __attribute__((noinline))"]
        weights = {s: v for x in layers for s, v in x.weights.items()}
        out += [_extern(s, v) for s, v in weights.items()]
        kernels: dict[str, str] = {}
        for x in layers:
            known = x.kernel in kernels
            name = kernels.setdefault(x.kernel, f"{x.family}{len(kernels)}")
            out += ["", *self._function(x, name, not known)]
        return out

    def _run(self, layers: Sequence[_Layer]) -> list[str]:
        """The function that runs all layers in order, up to the first that fails."""
        return ["", f"MB_HIDDEN int {self.run_name}(mb_mem mem) {{", "  int e = 0; (void)e; (void)mem;",
                *(f"  {line}" for line in self._calls(layers)), "  return 0;", "}"]

    def _calls(self, layers: Sequence[_Layer]) -> list[str]:
        """Statements that run layers up to the first that fails"""
        out = []
        for x in layers:
            call = f"mb_parallel_for({x.name}, mem)" if x.parallel else f"{x.name}(mem, 0, 1)"
            k = self.ticks.get(x.name)
            if k is not None:
                call = f"{call}, {self.run_name}_ticks[{k}] += __builtin_readcyclecounter() - t{k}, e"
                out.append(f"const unsigned long long t{k} = __builtin_readcyclecounter();")
            out.append(f"if ((e = {call})) return e;" if x.fails or k is not None else f"{call};")
        return out

    def _function(self, layer: _Layer, kernel: str, define: bool) -> list[str]:
        """A layer, behind its kernel's definitions where it is the first to use them.

        One that never runs in parts says so, since its caller is in another file.
        """
        n = layer.node
        ops = " + ".join(m.op for m in n.body.nodes) if n.body is not None else n.op
        types = ", ".join(str(v.type) for v in n.outputs)
        out = [f"/* {comment(n.name)}: {ops} -> {types} */"]
        out += layer.kernel.replace(KERNEL, kernel).splitlines() if define else []
        line = self.lines.get(n.name)
        if line:
            out.append(f'#line {line} "{self.prefix}.mb"')
        names = ("tid", "nt") if layer.parallel else ("tid_", "nt_")
        out.append(f"MB_LAYER int {layer.name}(mb_mem mem, int {names[0]}, int {names[1]}) {{")
        out.append(f"  (void)mem; (void){names[0]}; (void){names[1]};")
        out += [] if layer.parallel else ["  enum { tid = 0, nt = 1 };"]
        out += [f"  char *const {bank.pointer} = mem[{k}];" for k, bank in enumerate(self.p.banks)
                if any(f"{bank.pointer} + " in b for b in layer.body)]
        out += [f"  const long {s} = ((const int64_t *)mem[0])[{s.removeprefix('dim')}];"
                for s in open_symbols(layer.body)]
        out += [f"  {b.replace(KERNEL, kernel) if layer.kernel else b}" for b in layer.body]
        out += ["  return 0;", "}"]
        return out


def _headers(layers: Sequence[_Layer]) -> tuple[str, ...]:
    """Those that the layers call, in order: to read all is a fifth of a file's time. For a name not known, all."""
    text = "\n".join(t for x in layers for t in (x.kernel, *x.body))
    families = {x.family for x in layers if x.family}
    names = {n for n in re.findall(r"\b(?:mb|MB)_(?!w_)\w+", text) if n.removeprefix("mb_") not in families}
    words = {n: n.split("_")[1].lower().rstrip("0123456789") for n in names}
    named = families | {h for h, begin in _NAMED.items() if not begin.isdisjoint(words.values())}
    if {n for n in names if words[n] == "tfl"} == {"mb_tfl_scale"}:  # all that most integers need
        named = {h for h in named if h == "tfl" or not h.startswith("tfl")}
    others = {n for n in names if n.islower() and not any(words[n] in begin for begin in _NAMED.values())} - _PLAIN
    if not all(map(_CONVERSIONS.fullmatch, others - _COMMON)):
        return HEADERS
    used = named | {"base", "scalar", "abi", "hal"}
    if others or "double" in text:
        used |= {"math", "codes", "narrow", "epilogue"}
    return tuple(h for h in HEADERS if h in used)


def _is_routine(node: Node) -> bool:
    return node.op != "Fused" and opdef(node).has_routine


def _extern(symbol: str, v: Value) -> str:
    return f"extern MB_HIDDEN const {v.dtype.c} {symbol}[{max(v.type.size, 1)}];"


def _work(node: Node) -> int:
    """Rough number of scalar operations."""
    if is_contraction(node):
        c = parts(node)
        return guess(c.out.type.size * c.depth)
    size = max((guess(v.type.size) for v in [*node.used, *node.outputs]), default=0)
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


