"""What a program of several sizes has beside its layers: the run's dimensions, and the choice of a version.

The first bytes of memory are the sizes of all dimensions, and behind them the sizes that the last run's
outputs had:

    int64_t  dim0, dim1, ..., output 0's sizes, output 1's sizes, ...

A run looks which version has these dimensions and calls its layers. Sizes that no version has are an
error code, and so is a dimension that nobody has set. A dimension that grows is the program's own: the
length of state (`codegen/growth.py`), which a run leaves as long as what it gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from monobloc.codegen import growth
from monobloc.codegen.names import c_string, comment, mangle
from monobloc.errors import UnsupportedError
from monobloc.ir.dims import Dim, is_dim, symbols_of
from monobloc.ir.graph import Graph, Value
from monobloc.ir.symbolic import closed
from monobloc.ir.types import Shape

WORD = 8  # bytes of a size


@dataclass(frozen=True)
class Room:
    """Bytes at the bottom of memory that all versions lay out alike: the sizes, then each port."""

    sizes: int
    ports: Mapping[str, int]  # by `in NAME` and `out NAME`, in order


def room_of(graphs: Sequence[Graph]) -> Room:
    """Room for the largest of each port."""
    ports: dict[str, int] = {}
    for g in graphs:
        for name, v in ports_of(g):
            ports[name] = max(ports.get(name, 0), prod(closed(v.shape)) * v.dtype.size)
    ranks = sum(v.type.rank for _, v in graphs[0].outputs)
    return Room(WORD * (len(graphs[0].dims) + ranks), ports)


def ports_of(g: Graph) -> list[tuple[str, Value]]:
    """Inputs, then outputs, by what no two of them share."""
    return [*((f"in {v.origin or v.name}", v) for v in g.inputs), *((f"out {n}", v) for n, v in g.outputs)]


@dataclass(frozen=True)
class Version:
    """One version: the sizes it is for, the functions that are its layers, and the shapes of its ports."""

    at: Mapping[str, int]  # symbols of dimensions that have one size in this version
    when: tuple[str, ...]  # C of what must hold of the others
    parts: tuple[str, ...]
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    data: Mapping[int, str] = field(default_factory=dict)  # outputs whose sizes data decide: C of where a run has them
    growth: growth.Growth = growth.Growth()


@dataclass(frozen=True)
class Sizes:
    """The dimensions of a program and its versions; none of either: one version of fixed sizes."""

    dims: tuple[Dim, ...] = ()
    versions: tuple[Version, ...] = field(default=())

    def axes(self, k: int) -> list[int]:
        """For each axis of input `k`: the number of the dimension it is among those a run chooses, or -1."""
        found = []
        for axis in range(len(self.versions[0].inputs[k])):
            met = [m for m, n in enumerate(self.chosen) if all(is_dim(v.at, v.inputs[k][axis], symbols_of(self.dims)[n])
                                                              for v in self.versions)]
            found.append(met[0] if met else -1)
        return found

    @property
    def grown(self) -> list[int]:
        """Dimensions that are the length of state"""
        return sorted({k for v in self.versions for k in v.growth.sizes})

    @property
    def chosen(self) -> list[int]:
        """All others: who runs the program sets them"""
        return [k for k in range(len(self.dims)) if k not in self.grown]

    @property
    def ranks(self) -> int:
        """Sizes that the outputs have together"""
        return sum(map(len, self.versions[0].outputs))

    @property
    def of_data(self) -> list[int]:
        """Outputs whose sizes data decide, in some version"""
        return sorted({k for v in self.versions for k in v.data})

    def place_of(self, output: int) -> int:
        """The first size of an output in the block at the bottom of memory."""
        return len(self.dims) + sum(len(s) for s in self.versions[0].outputs[:output])


def check_names(prefix: str, dims: Sequence[Dim], outputs: Sequence[str]) -> None:
    """The functions of sizes must not be those of something else."""
    setters = [setter(prefix, d) for d in dims]
    if f"{prefix}_set_threads" in setters:
        raise UnsupportedError("a dimension called `threads` has the function of the number of threads",
                               hints=["give it another name in `--shape`, as in `--shape x=n,16 --dim n=1,2`"])
    names = {mangle(n) for n in outputs}
    if clash := [n for n in outputs if f"{mangle(n)}_dims" in names]:
        raise UnsupportedError(f"the sizes of output `{clash[0]}` have the function of output `{clash[0]}_dims`",
                               hints=["keep one of them: `--keep-output NAME`"])


# -- the header -----------------------------------------------------------------------------------------
def setter(prefix: str, dim: Dim) -> str:
    return f"{prefix}_set_{mangle(dim.name)}"


def getter(prefix: str, dim: Dim) -> str:
    return f"{prefix}_get_{mangle(dim.name)}"


def declarations(prefix: str, s: Sizes) -> list[str]:
    """What the header says of dimensions."""
    if not s.dims:
        return []
    up = prefix.upper()
    out = [f"/* Sizes of a run, to be set before the first: {up}_E_SHAPE for one that this was not built for.",
           f" * Tensors are dense in the sizes set. {up}_run returns {up}_E_SHAPE while one of them is not set. */"]
    for k, d in enumerate(s.dims):
        out.append(f"#define {up}_{mangle(d.name).upper()}_MAX {d.most} /* {comment(d.name)}: {d} */")
        if k in s.chosen:
            out += [f"int {setter(prefix, d)}(int64_t n);", f"int {setter(prefix, d)}_at(void *ram, int64_t n);"]
        length = "as set" if k in s.chosen else "the length of state"
        out += [f"int64_t {getter(prefix, d)}(void); /* {length} */", f"int64_t {getter(prefix, d)}_at(void *ram);"]
    return [*out, ""]


def output_declarations(prefix: str, name: str) -> list[str]:
    """What the header says of the sizes of an output."""
    stem = f"const int64_t *{prefix}_out_{mangle(name)}_dims"
    return [f"{stem}(void); /* its sizes in the last run */", f"{stem}_at(void *ram);"]


# -- the implementation -----------------------------------------------------------------------------------
def definitions(prefix: str, s: Sizes, outputs: Sequence[str], own: str) -> list[str]:
    """The choice of a version, its ports' shapes, and the functions that set and show sizes; `own` is
    where the image's own memory begins."""
    if not s.dims:
        return []
    symbols = symbols_of(s.dims)
    there = [f"  const int64_t {x} = d[{k}]; (void){x};" for k, x in enumerate(symbols)]
    out = ["", "static int version_of(const int64_t *d) {", *there]
    out += [f"  if (!({d.condition_of(x)})) return -1;" for x, d in zip(symbols, s.dims, strict=True)]
    for k, v in enumerate(s.versions):
        conditions = [*(f"{x} == {n}" for x, n in v.at.items()), *v.when]
        out.append(f"  if ({' && '.join(conditions) or '1'}) return {k};")
    out += ["  return -1;", "}", "static void shapes_of(const int64_t *d, int v, int64_t *s) {", *there]
    for k, v in enumerate(s.versions):
        shape = [d for x in (*v.inputs, *v.outputs) for d in x]
        given = " ".join(f"s[{n}] = {d};" for n, d in enumerate(shape))
        out.append(f"  if (v == {k}) {{ {given} return; }}")
    out += ["  (void)s;", "}", "static int set_at(void *ram, int32_t dim, int64_t n) {"]
    out += [f"  if (dim == {k} && !({d.condition_of('n')})) return MB_E_SHAPE;" for k, d in enumerate(s.dims)]
    out += ["  ((int64_t *)ram)[dim] = n;", "  return MB_OK;", "}"]
    for k in s.chosen:
        name = setter(prefix, s.dims[k])
        out += [f"MB_EXPORT int {name}_at(void *ram, int64_t n) {{ return set_at(ram, {k}, n); }}",
                f"MB_EXPORT int {name}(int64_t n) {{ return set_at({own}, {k}, n); }}"]
    for k, d in enumerate(s.dims):
        name = f"MB_EXPORT int64_t {getter(prefix, d)}"
        out += [f"{name}_at(void *ram) {{ return ((const int64_t *)ram)[{k}]; }}",
                f"{name}(void) {{ return ((const int64_t *)({own}))[{k}]; }}"]
    out += growth.definitions(s)
    for k, port in enumerate(outputs):
        stem, at = f"MB_EXPORT const int64_t *{prefix}_out_{mangle(port)}_dims", s.place_of(k)
        out += [f"{stem}_at(void *ram) {{ return (const int64_t *)ram + {at}; }}",
                f"{stem}(void) {{ return (const int64_t *)({own}) + {at}; }}"]
    return out


def calls(s: Sizes, parts: Sequence[str]) -> list[str]:
    """C that runs the layers: `mem` is the run's memory, `e` its status."""
    if not s.dims:
        return [f"  if (!e) e = {part}(mem);" for part in parts]
    out = []
    for k, v in enumerate(s.versions):
        out += [f"  if (!e && v == {k}) e = {part}(mem);" for part in v.parts]
        out += [f"  if (!e && v == {k}) __builtin_memcpy(d + {s.place_of(n)}, {place}, {WORD * len(v.outputs[n])});"
                for n, place in v.data.items()]
    return out


def unset(s: Sizes) -> list[str]:
    """C that leaves all dimensions unset, and outputs whose sizes data decide empty, in the memory `ram`."""
    places = [s.place_of(k) + axis for k in s.of_data for axis in range(len(s.versions[0].outputs[k]))]
    values = [*((k, -1) for k in s.chosen), *((k, 0) for k in (*s.grown, *places))]
    return [f"  ((int64_t *)ram)[{k}] = {n};" for k, n in values]


def choice(s: Sizes) -> list[str]:
    """C at the beginning of a run: which version it is, and what sizes its outputs have."""
    if not s.dims:
        return []
    ins = sum(map(len, s.versions[0].inputs))
    return [
        "  int64_t *const d = (int64_t *)(void *)mem[0];",
        "  const int v = version_of(d);",
        "  if (v < 0) return MB_E_SHAPE;",
        f"  int64_t shapes[{max(ins + s.ranks, 1)}];",
        "  shapes_of(d, v, shapes);",
        *growth.check(s),
        f"  for (int k = 0; k < {s.ranks}; k++) d[{len(s.dims)} + k] = shapes[{ins} + k];",
    ]


def in_row(d: Dim) -> bool:
    """Whether a loader needs no list of its sizes"""
    return d.is_range and d.step == 1


def table(s: Sizes) -> list[str]:
    """What a program says of its dimensions to loaders, as `dynamic`."""
    if not s.dims:
        return []
    out, chosen = [], [s.dims[k] for k in s.chosen]
    for k, d in enumerate(chosen):
        out.append(f"static const int64_t dim{k}_sizes[] = {{{'0' if in_row(d) else ', '.join(map(str, d.sizes))}}};")
    rows = [f"  {{{c_string(d.name)}, {d.sizes[0]}, {d.most}, {0 if in_row(d) else len(d.sizes)}, dim{k}_sizes}},"
            for k, d in enumerate(chosen)]
    out += ["static const struct mb_dim dims[] = {", *(rows or ["  {0}"]), "};"]
    out += [f"static const int32_t chosen[] = {{{', '.join(map(str, s.chosen)) or '0'}}};",
            "static int choose_at(void *ram, int32_t k, int64_t n) { return set_at(ram, chosen[k], n); }"]
    inputs = range(len(s.versions[0].inputs))
    out += [f"static const int32_t in{k}_axes[] = {{{', '.join(map(str, s.axes(k))) or '0'}}};" for k in inputs]
    names = ", ".join(f"in{k}_axes" for k in inputs) or "0"
    ins = sum(map(len, s.versions[0].inputs))
    last = [f"  __builtin_memcpy(out + {ins + s.place_of(k) - len(s.dims)}, (const int64_t *)ram + {s.place_of(k)}, "
            f"{WORD * len(s.versions[0].outputs[k])});" for k in s.of_data]
    return [
        *out, f"static const int32_t *const axes[] = {{{names}}};",
        "static int shapes_at(void *ram, int64_t *out) {",
        "  const int v = version_of((const int64_t *)ram);",
        "  if (v < 0) return MB_E_SHAPE;",
        "  shapes_of((const int64_t *)ram, v, out);", *last,
        "  return MB_OK;", "}",
        f"static const struct mb_dynamic dynamic = {{{len(chosen)}, dims, axes, choose_at, shapes_at}};",
    ]
