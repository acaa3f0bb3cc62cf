"""The C interface of a model: the header users include, and the file that implements it.

The implementation is compiled for the target's baseline, so that the CPU check runs before the first
instruction that may be missing. Names follow from the prefix; everything else is local.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from monobloc.codegen import growth, sizes
from monobloc.codegen.names import c_string, comment, mangle, scoped
from monobloc.codegen.place import Bank
from monobloc.codegen.sizes import Sizes
from monobloc.ir.symbolic import is_open
from monobloc.ir.types import DType, Shape, TensorType
from monobloc.targets import Target

_CODES = {
    DType.F32: "MB_F32", DType.F64: "MB_F64", DType.F16: "MB_F16", DType.BF16: "MB_BF16", DType.I8: "MB_I8",
    DType.I16: "MB_I16", DType.I32: "MB_I32", DType.I64: "MB_I64", DType.U8: "MB_U8", DType.U16: "MB_U16",
    DType.U32: "MB_U32", DType.U64: "MB_U64", DType.BOOL: "MB_BOOL",
    DType.CHAR: "MB_STRING", **{d: f"MB_{d.name}" for d in DType if d.is_code},
}
# what C and C++ both spell; half floats are passed as their bits
_HEADER_TYPES = {DType.F16: "uint16_t", DType.BF16: "uint16_t", DType.CHAR: "char"}


@dataclass(frozen=True)
class Port:
    """One input or output: its name in the model, its type and its place in the arena."""

    name: str
    type: TensorType
    offset: int  # bytes
    bank: int = 0  # number of the bank it lies in
    sizes: Port | None = None  # of an output: where its sizes in the last run are, if data decide them
    open_shape: Shape | None = None  # where its sizes are chosen by a run

    @property
    def shape(self) -> Shape:
        return self.type.shape if self.open_shape is None else self.open_shape

    @property
    def c(self) -> str:
        return _HEADER_TYPES.get(self.type.dtype, self.type.dtype.c)

    @property
    def bytes(self) -> int:
        return self.type.bytes


@dataclass(frozen=True)
class Interface:
    """All that the two texts need."""

    prefix: str
    title: str  # the model's own name
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[tuple[Port, Port], ...]  # an input and the output that becomes it, neither visible
    arena: int
    weights_bytes: int
    stack_bound: int
    parts: tuple[str, ...]
    target: Target
    threads: int
    banks: tuple[Bank, ...]
    strict: bool = False
    shared: bool = False  # memory that lives within a run is the program's, one for all models
    sizes: Sizes = Sizes()  # dimensions that a run chooses

    @property
    def cleared(self) -> list[Port]:
        """What a reset sets to zero: state, unless it is empty then, and sizes of outputs that no run has given yet"""
        states = [x for x, _ in self.states if not any(map(is_open, x.shape))]
        return [*states, *(p.sizes for p in self.outputs if p.sizes is not None)]

    @property
    def dynamic(self) -> bool:
        """Whether some size is not known before a run"""
        return bool(self.sizes.dims) or any(p.sizes for p in self.outputs)


def port_names(ports: tuple[Port, ...]) -> list[str]:
    return [mangle(p.name) for p in ports]


def macro_names(names: list[str]) -> list[str]:
    """Upper case, as C has it; names that differ in nothing but case keep theirs."""
    count = Counter(n.upper() for n in names)
    return [n.upper() if count[n.upper()] == 1 else n for n in names]


# -- header -------------------------------------------------------------------------------------------
def header(i: Interface) -> str:
    """C99 and C++ header; needs no other of ours. It holds what a link cannot change."""
    p, up = i.prefix, i.prefix.upper()
    out = [
        f"/* {comment(i.title)}: made by Monobloc. */",
        f"#ifndef {up}_H", f"#define {up}_H", "", "#include <stddef.h>", "#include <stdint.h>", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"enum {{ {up}_OK, {up}_E_INDEX, {up}_E_SHAPE, {up}_E_CPU, {up}_E_BUSY, {up}_E_FOREIGN = 256 }};",
        f"const char *{p}_strerror(int status);", "",
        "#ifdef __GNUC__ /* who ignores a status is warned */",
        f"#define {up}_STATUS __attribute__((warn_unused_result))",
        "#else", f"#define {up}_STATUS", "#endif", "",
    ]
    out += sizes.declarations(p, i.sizes)
    for kind, ports in (("in", i.inputs), ("out", i.outputs)):
        macros = macro_names(port_names(ports))
        for port, macro in zip(ports, macros, strict=True):
            out += _port_declarations(i, kind, port, f"{up}_{kind.upper()}_{macro}")
    out += [
        f"/* One inference: {up}_OK or an error. Not re-entrant: see {p}_run_at. */",
        f"int {p}_run(void) {up}_STATUS;",
        f"void {p}_reset(void);",
        f"void {p}_set_threads(int n);",
        f"void {p}_stop(void);",
        "",
        f"/* Re-entrant: one ram of {p}_ram_size bytes per thread, aligned to 64, {p}_reset_at once on a new one. */",
        f"#define {up}_RAM_MAX {i.arena}u",
        f"extern const size_t {p}_ram_size;",
        f"int {p}_run_at(void *ram) {up}_STATUS;",
        f"void {p}_reset_at(void *ram);",
        "", "#ifdef __cplusplus", "}", "#endif", "#endif", "",
    ]
    return "\n".join(out)


def _port_declarations(i: Interface, kind: str, port: Port, up: str) -> list[str]:
    p, name = i.prefix, mangle(port.name)
    const = "const " if kind == "out" else ""
    dims = ", ".join(map(str, port.type.shape)) or "1"
    most = " at most" if i.sizes.dims or port.sizes else ""
    what = "where to write the input" if kind == "in" else "the output of the last run"
    return [
        f"/* {comment(port.name)}: {port.type.dtype.value}{list(port.type.shape)}{most}, {what} */",
        f"#define {up}_SIZE {port.type.size}",
        f"#define {up}_RANK {port.type.rank}",
        f"#define {up}_DIMS {{{dims}}}",
        f"{const}{port.c} *{p}_{kind}_{name}(void);",
        f"{const}{port.c} *{p}_{kind}_{name}_at(void *ram);",
        *(sizes.output_declarations(p, port.name) if kind == "out" and (i.sizes.dims or port.sizes) else ()),
        "",
    ]


# -- implementation -----------------------------------------------------------------------------------
def implementation(i: Interface) -> str:
    """The C file behind the header."""
    p = i.prefix
    features = ",".join(i.target.required_cpu)
    out = ['#include "mb/abi.h"', '#include "mb/cpu.h"', '#include "mb/fp.h"', '#include "mb/hal.h"', ""]
    out += [f"MB_HIDDEN int {part}(mb_mem mem);" for part in i.parts]
    out += [
        "",
        *_memory(i),
        f"#define FEATURES {c_string(features)} /* a literal: one for all models, so that one check serves them */",
        "",
        f"MB_EXPORT extern const size_t {p}_ram_size;",
        f"const size_t {p}_ram_size = {max(i.arena, 1)};",
        "",
    ]
    for kind, ports in (("in", i.inputs), ("out", i.outputs)):
        out += [line for port in ports for line in _accessors(i, kind, port)]
    out += sizes.definitions(p, i.sizes, [x.name for x in i.outputs], f"{own_bank(i, i.banks[0])}")
    out += _runs(i)
    out += _info(i)
    return "\n".join(out) + "\n"


def _memory(i: Interface) -> list[str]:
    """The image's own memory: this model's alone, but for what all models of a program share."""
    own = [b for b in i.banks if not (i.shared and b.shareable)]
    out = [f"static {_array(b)} {own_bank(i, b)}[{b.skew + max(b.bytes, 1)}];" for b in own]
    out += [f"MB_HIDDEN extern char {own_bank(i, b)}[];" for b in i.banks if b not in own]
    return [*out, f"MB_HIDDEN extern int {busy_flag(i)};" if i.shared else f"static int {busy_flag(i)};"]


def own_bank(i: Interface, b: Bank) -> str:
    """The array that is a bank of the image's own memory."""
    return f"mb_shared_{b.name}" if i.shared and b.shareable else f"mb_mem_{scoped(i.prefix, b.name)}"


def busy_flag(i: Interface) -> str:
    return "mb_shared_busy" if i.shared else "busy"


def shared_memory(interfaces: Sequence[Interface]) -> str:
    """The file that defines what models share: each bank as large as the largest needs it."""
    banks = {b.name: b for i in interfaces for b in i.banks if b.shareable}
    room = shared_bytes(interfaces)
    lines = [f"MB_HIDDEN {_array(b)} mb_shared_{name}[{max(room[name], 1)}];" for name, b in banks.items()]
    return "\n".join(['#include "mb/abi.h"', "", *lines, "MB_HIDDEN int mb_shared_busy;", ""])


def shared_bytes(interfaces: Sequence[Interface]) -> dict[str, int]:
    """Bytes of each bank that models share."""
    room: dict[str, int] = {}
    for i in interfaces:
        for b in i.banks:
            if b.shareable:
                room[b.name] = max(room.get(b.name, 0), b.skew + b.bytes)
    return room


def _array(b: Bank) -> str:
    place = f' __attribute__((section("{b.region.prefix}.{b.name}")))' if b.region else ""
    return f"_Alignas(MB_RAM_ALIGN){place} char"


def own_place(i: Interface, port: Port) -> str:
    """Where a port lies in the image's own memory."""
    b = i.banks[port.bank]
    return f"{own_bank(i, b)} + {b.skew + port.offset - b.start}"


def in_mem(i: Interface, port: Port) -> str:
    """Where a port lies in the memory that a run was given."""
    return f"mem[{port.bank}] + {port.offset - i.banks[port.bank].start}"


def _accessors(i: Interface, kind: str, port: Port) -> list[str]:
    type_ = f"const {port.c}" if kind == "out" else port.c
    name = f"{i.prefix}_{kind}_{mangle(port.name)}"
    out = [] if port.sizes is None else [
        f"MB_EXPORT const int64_t *{name}_dims_at(void *ram) {{ "
        f"return (const int64_t *)((char *)ram + {port.sizes.offset}); }}",
        f"MB_EXPORT const int64_t *{name}_dims(void) {{ return (const int64_t *)({own_place(i, port.sizes)}); }}",
    ]
    return [
        *out,
        f"MB_EXPORT {type_} *{name}_at(void *ram) {{ return ({type_} *)((char *)ram + {port.offset}); }}",
        f"MB_EXPORT {type_} *{name}(void) {{ return ({type_} *)({own_place(i, port)}); }}",
    ]


def _runs(i: Interface) -> list[str]:
    p, enter = i.prefix, "mb_fp_enter_strict" if i.strict else "mb_fp_enter"
    out = [
        "",
        "static __attribute__((noinline)) int run_in(mb_mem mem) {",
        "  int e = mb_cpu_check(FEATURES);",
        "  if (e) return e;",
        *sizes.choice(i.sizes),
        f"  const uint64_t fp = {enter}();",
        *sizes.calls(i.sizes, i.parts),
    ]
    threads = "mb_set_threads(n)" if i.threads > 1 else "(void)n"
    stop = "mb_stop()" if i.threads > 1 else "(void)0"
    out += [
        "  mb_fp_leave(fp);",
        *growth.keep(i, [(in_mem(i, x), in_mem(i, y)) for x, y in i.states]),
        "  return e;",
        "}",
        f"MB_EXPORT int {p}_run_at(void *ram) {{",
        f"  char *const mem[] = {{{', '.join(f'(char *)ram + {b.start}' for b in i.banks)}}};",
        "  return run_in(mem);",
        "}",
        f"MB_EXPORT int {p}_run(void) {{",
        f"  if (__atomic_exchange_n(&{busy_flag(i)}, 1, __ATOMIC_ACQUIRE)) return MB_E_BUSY;",
        f"  char *const mem[] = {{{', '.join(f'{own_bank(i, b)} + {b.skew}' for b in i.banks)}}};",
        "  int e = run_in(mem);",
        f"  __atomic_store_n(&{busy_flag(i)}, 0, __ATOMIC_RELEASE);",
        "  return e;",
        "}",
        f"MB_EXPORT void {p}_reset_at(void *ram) {{",
        "  (void)ram;",
        *sizes.unset(i.sizes),
        *(f"  __builtin_memset((char *)ram + {x.offset}, 0, {x.bytes}u);" for x in i.cleared),
        "}",
        f"MB_EXPORT void {p}_reset(void) {{",
        *(f"  ((int64_t *)({own_bank(i, i.banks[0])}))[{k}] = 0;" for k in i.sizes.grown),
        *(f"  __builtin_memset({own_place(i, x)}, 0, {x.bytes}u);" for x in i.cleared),
        "}",
        f"MB_EXPORT void {p}_set_threads(int n) {{ {threads}; }}",
        f"MB_EXPORT void {p}_stop(void) {{ {stop}; }}",
        f"MB_EXPORT const char *{p}_strerror(int status) {{ return mb_strerror(status); }}",
        "",
    ]
    return out


def _info(i: Interface) -> list[str]:
    p = i.prefix
    out: list[str] = []
    for kind, ports in (("in", i.inputs), ("out", i.outputs)):
        for k, port in enumerate(ports):
            dims = ", ".join(map(str, port.type.shape)) or "0"
            out.append(f"static const int64_t {kind}{k}_dims[] = {{{dims}}};")
            own = f"if (ram == {own_bank(i, i.banks[0])}) return {own_place(i, port)}; " if port.bank else ""
            out.append(f"static void *{kind}{k}_at(void *ram) {{ {own}return (char *)ram + {port.offset}; }}")
        rows = [
            f"  {{{c_string(port.name)}, {_CODES[port.type.dtype]}, {port.type.rank}, {kind}{k}_dims, "
            f"{port.bytes}u, {kind}{k}_at}},"
            for k, port in enumerate(ports)
        ]
        out += [f"static const struct mb_tensor_info {kind}s[] = {{", *(rows or ["  {0}"]), "};"]
    out += sizes.table(i.sizes) if i.sizes.dims else _data_decide(i) if i.dynamic else []
    out += [
        f"static void *own_ram(void) {{ return {own_bank(i, i.banks[0])}; }}",
        "static const struct mb_bank banks[] = {",
        *(f'  {{"{b.name}", {own_bank(i, b)} + {b.skew}, {b.bytes}u}},' for b in i.banks),
        "};",
        f"MB_HIDDEN extern const struct mb_model_info mb_info_{p};",
        f"const struct mb_model_info mb_info_{p} = {{",
        "  .abi = MB_ABI, .size = sizeof(struct mb_model_info),",
        f"  .name = {c_string(i.title)}, .n_inputs = {len(i.inputs)}, .n_outputs = {len(i.outputs)},",
        "  .inputs = ins, .outputs = outs,",
        f"  .ram_size = {max(i.arena, 1)}u, .weights_bytes = {i.weights_bytes}u, .stack_bound = {i.stack_bound}u,",
        f"  .run = {p}_run, .run_at = {p}_run_at, .reset = {p}_reset, .reset_at = {p}_reset_at, .ram = own_ram,",
        f"  .set_threads = {p}_set_threads, .stop = {p}_stop, .strerror = {p}_strerror,",
        f"  .target = {c_string(i.target.name + ' ' + i.target.cpu)}, .features = FEATURES,",
        f"  .max_threads = {i.threads}, .n_banks = {len(i.banks)}, .banks = banks,",
        *(["  .dynamic = &dynamic,"] if i.dynamic else []),
        "};",
    ]
    return out


def _data_decide(i: Interface) -> list[str]:
    """`dynamic` of a model that takes one size, and gives outputs of sizes that data decide"""
    fill, at = [], 0
    for port in (*i.inputs, *i.outputs):
        rank = port.type.rank
        if port.sizes is not None:
            own = f"ram == {own_bank(i, i.banks[0])} ? {own_place(i, port.sizes)} : (char *)ram + {port.sizes.offset}"
            fill.append(f"  __builtin_memcpy(out + {at}, {own}, {8 * rank});")
        else:
            fill += [f"  out[{at + k}] = {d};" for k, d in enumerate(port.type.shape)]
        at += rank
    axes = [f"static const int32_t in{k}_axes[] = {{{', '.join(['-1'] * p.type.rank) or '0'}}};"
            for k, p in enumerate(i.inputs)]
    names = ", ".join(f"in{k}_axes" for k in range(len(i.inputs))) or "0"
    return [
        *axes, f"static const int32_t *const axes[] = {{{names}}};",
        "static int set_at(void *ram, int32_t dim, int64_t n) { (void)ram; (void)dim; (void)n; return MB_E_SHAPE; }",
        "static int shapes_at(void *ram, int64_t *out) {", "  (void)ram; (void)out;", *fill, "  return MB_OK;", "}",
        "static const struct mb_dynamic dynamic = {0, (const struct mb_dim *)0, axes, set_at, shapes_at};",
    ]


def model_table(prefixes: tuple[str, ...]) -> str:
    """The file that lists an image's models for `main` and for loaders."""
    out = ['#include "mb/abi.h"', ""]
    out += [f"MB_HIDDEN extern const struct mb_model_info mb_info_{p};" for p in prefixes]
    out += ["", "MB_EXPORT const struct mb_model_info *monobloc_model(int i) {"]
    for k, p in enumerate(prefixes):
        out.append(f"  if (i == {k}) return &mb_info_{p};")
    out += ["  return (const struct mb_model_info *)0;", "}", ""]
    return "\n".join(out)
