"""Stage 1: a model's graph becomes an Object that any linker takes and that ours compiles anew.

The graph goes in as it was imported, by logical weights; the native code beside it is made with
default decisions and reads the same stored weights, at most permuted. Where it reads a permutation,
that is what is stored, and the graph says Transpose: weights are in the file once.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.cache import Cache
from monobloc.codegen.lower import Lowered
from monobloc.codegen.versions import lower_all
from monobloc.errors import LinkError, ModelError
from monobloc.ir.graph import Const, Graph, Value, content_key
from monobloc.ir.text import INLINE, copy_graph, parse_graphs, print_graph
from monobloc.ir.types import TensorType
from monobloc.kernels.foreign import header_folders
from monobloc.link import stack
from monobloc.object import ar, toolchain
from monobloc.object.elf import Later
from monobloc.object.fat import Object, Weight, weight_hash
from monobloc.object.toolchain import CompileJob, LinkJob
from monobloc.options import Options
from monobloc.passes import PassContext, dump_to

CSRC = Path(__file__).resolve().parent.parent / "csrc"
LOGICAL = ".logical"  # marks a value that is a permutation of a stored weight
INCLUDE, RUNTIME = CSRC / "include", CSRC / "runtime"
PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class PartInfo:
    """What a part says of the model it was cut from; names are those of graph values but `all_outputs`."""

    index: int
    count: int
    model_inputs: tuple[str, ...]  # this part's inputs that are the model's
    model_outputs: tuple[tuple[str, str], ...]  # exported name, value
    all_inputs: tuple[str, ...]
    all_outputs: tuple[str, ...]
    model: str = ""  # the content of the whole model, weights included, and where it was cut


@dataclass(frozen=True)
class Module:
    """A graph with the prefix of its C interface, the title users know it by, and where it is from."""

    graph: Graph
    prefix: str
    title: str
    origin: str = ""
    part: PartInfo | None = None
    ram_max: int = 0  # what the header says that a run needs at most; 0: no header was written before
    more: tuple[Graph, ...] = ()  # versions of the graph at other sizes

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All versions; a model of fixed sizes has one."""
        return (self.graph, *self.more)

    @property
    def own_prefix(self) -> str:
        """Prefix of the object's own native code: parts of one model must not clash."""
        return self.prefix if self.part is None else f"{self.prefix}_part{self.part.index}"


def context(o: Options, stage: str) -> PassContext:
    return PassContext(target=o.target, numerics=o.numerics, threads=o.threads, optimize=o.optimize, stage=stage,
                       kernels=o.kernels if stage == "image" else (),
                       regions=o.memories if stage == "image" else ())


# -- writing ------------------------------------------------------------------------------------------
def compile_module(m: Module, o: Options, cache: Cache | None = None) -> tuple[Object, Lowered]:
    """The Object of a module and what its native code was made from."""
    native = lower_all(map(copy_graph, m.graphs), context(o, "object"), m.own_prefix, m.title,
                   dump_to(o.dump / "object") if o.dump else None)
    stored, ir = _store_weights(m.graphs, native)
    weights = {key: stored_weight(v) for key, v in stored.items()}
    large = sum(w.size for w in weights.values()) > o.large_over
    code, bitcode, native = _compile(native, o, cache, large)
    summary: dict[str, Any] = {
        "prefix": m.prefix,
        "title": m.title,
        "inputs": [[v.origin or v.name, str(v.type)] for v in m.graph.inputs],
        "outputs": [[n, str(v.type)] for n, v in m.graph.outputs],
        "target": o.target.name,
        "cpu": o.target.cpu,
        "features": list(o.target.features),
        "threads": o.threads,
        "ram_max": native.interface.arena,
        "numerics": o.numerics,
        "part": None if m.part is None else asdict(m.part),
        "graph_hash": hashlib.sha256(ir.encode()).hexdigest(),
    }
    return Object(code, ir, bitcode, summary, weights, m.prefix, o.large_over), native


def stored_weight(v: Value, section: str = "") -> Weight:
    """A constant as it is written; a tensor of no elements has a place all the same."""
    assert v.const is not None
    c, size = v.const, v.type.bytes or v.dtype.size

    def data() -> memoryview:
        a = np.ascontiguousarray(c.array).reshape(-1)
        return (a if a.size else np.zeros(1, a.dtype)).view(np.uint8).data.cast("B")

    return Weight(Later(size, data), section=section)


def _store_weights(graphs: Sequence[Graph], native: Lowered) -> tuple[dict[str, Value], str]:
    """What is stored, by content, and the text of the graphs that read it."""
    stored: dict[str, Value] = {}
    permuted: dict[str, tuple[Const, tuple[int, ...]]] = {}
    logical: dict[str, set[TensorType]] = {}  # equal bytes may be tensors of several shapes
    for v in [v for g in graphs for part in g.tree() for v in part.constants()]:
        assert v.const is not None
        logical.setdefault(v.const.key, set()).add(v.type)
    for v in native.weights.values():
        assert v.const is not None
        stored[v.const.key] = v
        if v.const.source is not None and len(logical.get(v.const.source[0].key, ())) == 1:
            permuted[v.const.source[0].key] = (v.const, v.const.source[1])
    return stored, "\n".join(_stored_text(g, stored, permuted) for g in graphs)


def _stored_text(
    g: Graph, stored: dict[str, Value], permuted: dict[str, tuple[Const, tuple[int, ...]]]
) -> str:
    """A graph that reads stored weights; what is not among them joins them."""
    out = copy_graph(g)
    for part, v in [(p, v) for p in out.tree() for v in p.constants()]:
        assert v.const is not None
        if v.type.size <= INLINE or v.const.key in stored:
            continue
        if v.const.key in permuted:
            const, perm = permuted[v.const.key]
            t = TensorType(v.dtype, tuple(v.shape[p] for p in perm))
            base = part.const_value(f"{v.name}.stored", t, const)
            inverse = [perm.index(k) for k in range(len(perm))]
            first = part.nodes[0] if part.nodes else None
            attrs = {"perm": inverse, "key": v.const.key}
            node = part.make("Transpose", [base], [v.type], attrs, name=f"{v.name}{LOGICAL}", before=first)
            part.replace(v, node.outputs[0])
        else:
            stored[v.const.key] = v
    return print_graph(out)


def _compile(low: Lowered, o: Options, cache: Cache | None, large: bool) -> tuple[bytes, bytes, Lowered]:
    """Native code, runtime included, and bitcode of a module, each as one file; now with a stack bound."""
    with tempfile.TemporaryDirectory(prefix="monobloc-") as tmp:
        folder = Path(tmp)
        native = compile_sources(o, folder, "native", cache, model_files(low), large)
        runtime = compile_runtime(o, folder, object_runtime(o), cache, weak=True)
        code = toolchain.relocatable([*native, *runtime], folder / "code.o", o.target)
        data = code.read_bytes()
        bounded, bounds = stack.with_bounds(data, [low.interface.prefix], lambda d: trial_link(d, folder, o))
        bitcode = compile_sources(o, folder, "bitcode", cache, model_files(low), large)
        packed = toolchain.archive(bitcode, folder / "bc.a")
        return bounded, packed.read_bytes(), low.bounded(bounds)


def trial_link(relocatable: bytes, folder: Path, o: Options) -> bytes:
    """A relocatable linked as it will be, for what only the linker can tell of it.

    Weights and what the application brings are not there yet.
    """
    whole = folder / "trial.o"
    whole.write_bytes(relocatable)
    job = LinkJob("exe", (whole,), folder / "trial", o.target, gc=False, pie=False, entry="0",
                  extra=("--noinhibit-exec", *stack.LINK_FLAGS))
    return toolchain.link(job).out.read_bytes()


def model_files(low: Lowered) -> dict[str, str]:
    return {**low.files, f"{low.interface.prefix}.interface.c": low.interface_file}


_LINES = re.compile(r"^#line .*\n", re.M)


def compile_sources(
    o: Options, folder: Path, kind: toolchain.Kind, cache: Cache | None, files: dict[str, str], large: bool = False,
) -> list[Path]:
    """A program's C files as objects."""
    jobs = source_jobs(o, folder, kind, files, large)
    return [c.out for c in toolchain.compile_all(jobs, o.jobs or None, cache)]


def source_jobs(
    o: Options, folder: Path, kind: toolchain.Kind, files: Mapping[str, str], large: bool = False,
    native: Collection[str] = (),
) -> list[CompileJob]:
    """How a program's C files become objects; the interface for the baseline, since it checks the CPU.

    `large`: weights may lie further away than 32-bit distances reach. `native`: files that are of that kind anyway.
    """
    jobs = []
    extra = (*numeric_flags(o), *(o.target.large_data_flags if large else ()))
    for name, text in files.items():
        if not o.debug:  # where a line came from moves with every line above it
            text = _LINES.sub("", text)
        meets_users = name.endswith(".interface.c")
        target = o.target.baseline() if meets_users else o.target
        # Freestanding code is not inlined into hosted: LLVM minds which builtins either may call.
        own = (*extra, "-fhosted") if meets_users else extra
        this: toolchain.Kind = "native" if name in native else kind
        jobs.append(CompileJob(text.encode(), folder / f"{name}.{this}.o", target, this, o.opt, (INCLUDE,), extra=own,
                               name=name, debug=o.debug, foreign=header_folders(text, o.kernels)))
    return jobs


_HOT_RUNTIME = ("mem.", "pool_")


def numeric_flags(o: Options) -> tuple[str, ...]:
    """The arena's bytes change their type from layer to layer, so types say nothing about aliasing.

    `strict`: no product is contracted with a sum, in kernels or in expressions. `fast`: the larger of a NaN and a
    number is what the CPU's instruction makes of them.
    """
    own = {"strict": ("-ffp-contract=off", "-DMB_STRICT"), "fast": ("-DMB_FAST_NAN",)}
    return ("-fwrapv", "-fno-strict-aliasing", *own.get(o.numerics, ()))


def object_runtime(o: Options) -> list[str]:
    """Runtime sources every object brings along for somebody else's linker."""
    cpu = [s for s in o.target.runtime if s.startswith("cpu_")]
    return [*cpu, *(["pool_pthread.c"] if o.threads > 1 else [])]


def compile_runtime(
    o: Options, folder: Path, sources: Sequence[str], cache: Cache | None, weak: bool = False,
    kind: toolchain.Kind = "native",
) -> list[Path]:
    """Runtime sources, always for the baseline: they run before the CPU check has passed.

    Small, but for what runs inside an inference.
    """
    defines = [("MB_MAX_THREADS", str(max(o.threads, 1))), ("MB_STACK_BYTES", str(stack.WORKER_STACK))]
    defines += ([("MB_RT_WEAK", "1")] if weak else [])
    jobs = [CompileJob(RUNTIME / s, folder / f"rt.{s}.o", o.target.baseline(), kind,
                       o.opt if s.startswith(_HOT_RUNTIME) else "size", (INCLUDE, RUNTIME),
                       tuple(defines), extra=("-fwrapv",)) for s in sources]
    return [c.out for c in toolchain.compile_all(jobs, o.jobs or None, cache)]


# -- reading ------------------------------------------------------------------------------------------
def read_module(obj: Object) -> Module:
    """The graph of an Object; weights are read when somebody asks for their bytes."""
    def weight(key: str, t: TensorType) -> Const:
        if key not in obj.weights:
            raise LinkError(f"{obj.name}: the graph names weight `{key}`, which is not in the file")
        w = obj.weights[key]
        if w.size != t.bytes:
            raise LinkError(f"{obj.name}: weight `{key}` has {w.size} bytes, {t} needs {t.bytes}")
        known: set[str] = set()

        def load() -> np.ndarray:
            data = ar.taken(w.read())
            if not known and weight_hash(data) != key:  # its name decides what is cached, so it must tell the truth
                raise LinkError(f"{obj.name}: weight `{key}` is damaged", hints=["compile the model again"])
            known.add(key)
            return np.frombuffer(data, t.dtype.numpy).reshape(t.shape)

        return Const(key=key, load=load)

    prefix, title = obj.summary.get("prefix"), obj.summary.get("title")
    if not isinstance(prefix, str) or not isinstance(title, str) or not PREFIX.fullmatch(prefix):
        raise LinkError(f"{obj.name}: damaged summary: prefix {prefix!r}, title {title!r}")
    try:
        graphs = parse_graphs(obj.ir, weight)
    except ModelError as e:
        raise LinkError(f"{obj.name}: damaged graph: {e.message}") from None
    for g in graphs:
        _restore_logical(g, obj.name)
    ram_max = int(obj.summary.get("ram_max", 0))
    return Module(graphs[0], prefix, title, obj.name, _part_info(obj), ram_max, tuple(graphs[1:]))


def _restore_logical(g: Graph, name: str) -> None:
    """Weights that are stored permuted become the model's own again, under their name; still unread."""
    for part, node in [(p, n) for p in g.tree() for n in p.nodes if n.op == "Transpose" and "key" in n.attrs]:
        stored, v, key = node.inputs[0], node.outputs[0], str(node.attrs["key"])
        if stored is None or stored.const is None:
            raise LinkError(f"{name}: damaged graph: `{v.name}` is no permutation of a weight")
        load = _transposed(stored.const, tuple(node.attrs["perm"]), key, f"{name}: weight `{key}`")
        const = Const(key=key, load=load)
        part.replace(v, part.const_value(v.name.removesuffix(LOGICAL), v.type, const))
        part.remove(node)


def _transposed(stored: Const, perm: tuple[int, ...], key: str, what: str) -> Callable[[], np.ndarray]:
    def load() -> np.ndarray:
        array = np.ascontiguousarray(stored.array.transpose(perm))
        if content_key(array) != key:
            raise LinkError(f"{what} is damaged", hints=["compile the model again"])
        return array

    return load


def _part_info(obj: Object) -> PartInfo | None:
    """A part's record from the summary; damaged ones are told, not believed."""
    raw = obj.summary.get("part")
    if raw is None:
        return None
    try:
        pairs = tuple((str(a), str(b)) for a, b in raw["model_outputs"])
        names = (tuple(map(str, raw[k])) for k in ("model_inputs", "all_inputs", "all_outputs"))
        model_inputs, all_inputs, all_outputs = names
        index, count, model = int(raw["index"]), int(raw["count"]), str(raw.get("model", ""))
        return PartInfo(index, count, model_inputs, pairs, all_inputs, all_outputs, model)
    except (KeyError, TypeError, ValueError):
        raise LinkError(f"{obj.name}: damaged summary: the record of the part does not read") from None


def module_key(m: Module) -> str:
    """Identity of a module for caches: its graph names its weights by content."""
    text = json.dumps([*map(print_graph, m.graphs), m.prefix, m.title])
    return hashlib.sha256(text.encode()).hexdigest()
