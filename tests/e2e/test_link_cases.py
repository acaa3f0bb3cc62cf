"""Link cases that broke other compilers and linkers, each with the number it has in the collection of cases.

Models in archives and duplicate names (50, 57, 73) are tested in `test_resolve.py` too; a head that
nobody reads (76) in `test_live.py`, placement by section name (66) with the memory regions.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from shop import HEADERS, NAMES, Shop, call

from monobloc import driver
from monobloc.errors import MonoblocError
from monobloc.link.image_cache import image_key
from monobloc.link.objects import module_key
from monobloc.loader import CompiledModel
from monobloc.object import elf, fat, toolchain
from monobloc.options import Options
from monobloc.targets import Region, resolve

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C library: the system has no `cc`")
LTO = pytest.mark.parametrize("lto", ["none", "thin", "full"])
FOREIGN = pytest.mark.parametrize("linker", ["bfd", "lld", "mold"])
X86 = pytest.mark.skipif(resolve().name != "x86_64-linux", reason="reads x86-64 code")


def tool(*names: str) -> str:
    found = next((p for n in names if (p := shutil.which(n))), None)
    if found is None:
        pytest.skip(f"{names[0]} is not installed")
    return found


def foreign_link(linker: str, shop: Shop, *words: object) -> Path:
    """By gcc, with the linker named."""
    tool({"bfd": "ld.bfd", "lld": "ld.lld"}.get(linker, linker))
    out = shop.folder / f"out-{linker}"
    call(tool("gcc"), f"-fuse-ld={linker}", "-Wl,--gc-sections", *words, "-o", out)
    return out


def symbols(path: Path) -> dict[str, elf.Symbol]:
    return {s.name: s for s in elf.linked_symbols(path.read_bytes()) if s.defined and s.name}


@functools.cache
def disassembly(path: Path) -> dict[str, str]:
    """Code by function."""
    text = call(tool("objdump"), "-d", "--no-show-raw-insn", path)
    blocks = re.split(r"\n[0-9a-f]+ <(.+?)>:\n", text)
    return dict(zip(blocks[1::2], blocks[2::2], strict=True))


# -- archives and gc ------------------------------------------------------------------------------------
@FOREIGN
def test_nothing_registers_itself(shop: Shop, linker: str) -> None:
    """50, 73: kernels that register themselves vanish from a static library; ours are called by name."""
    sections = {s.name for n in NAMES for s in elf.sections((shop.folder / f"{n}.o").read_bytes())}
    assert not [s for s in sections if s.startswith((".init_array", ".ctors", ".preinit_array"))]
    out = foreign_link(linker, shop, shop.app("kws_run()"), shop.archive("libm.a", *NAMES))
    assert call(out) == "0\n"
    assert "kws_run" in symbols(out) and "vad_run" not in symbols(out), "only what is needed is linked"


HOOKS = """
#define HOOK(f) __attribute__((section("hooks"), used)) int (*const f##_hook)(void) = f
static int a(void) { return 20; } static int b(void) { return 22; }
HOOK(a); HOOK(b);
extern int (*const __start_hooks[])(void), (*const __stop_hooks[])(void);
int main(void) { int n = kws_run(); for (int (*const *h)(void) = __start_hooks; h < __stop_hooks; h++) n += (*h)();
  printf("%d\\n", n); return 0; }
"""


@LTO
@pytest.mark.parametrize("native", [False, True])
def test_sections_found_by_start_and_stop_survive(shop: Shop, lto: str, native: bool) -> None:
    """51: `--gc-sections` drops sections that are reached by `__start_NAME` only, where lld has its own way."""
    app = shop.code("app", HOOKS, native)
    assert call(shop.link(app, shop.folder / "kws.o", lto=lto).path) == "42\n"


@FOREIGN
def test_our_objects_live_through_every_gc(shop: Shop, linker: str) -> None:
    """51: what a model needs is reached by references, never by the name of a section."""
    app = shop.app("kws_run()", "(int)(kws_out_y()[0] != kws_out_y()[0])", native=True)
    assert call(foreign_link(linker, shop, app, shop.folder / "kws.o")) == "0\n0\n"
    names = {s.name for s in elf.symbols((shop.folder / "kws.o").read_bytes())}
    assert not [n for n in names if n.startswith(("__start_", "__stop_"))]


# -- symbols under LTO ----------------------------------------------------------------------------------
@LTO
def test_calls_that_the_compiler_makes_up(shop: Shop, lto: str) -> None:
    """52: a division that becomes a call only when code is generated, after symbols were resolved."""
    app = shop.code("app", """
#include <stdlib.h>
#include <string.h>
struct big { char c[4096]; };
int main(int argc, char **argv) {
  unsigned __int128 a = ((unsigned __int128)strtoull("9000000000000000000", 0, 10) << 40) + 7, b = 1000003u * argc;
  __float128 q = argc; struct big x, y; memset(&x, argc, sizeof x); y = x;
  printf("%llu %llu %d %d\\n", (unsigned long long)(a / b), (unsigned long long)(a % b), (int)(q * 3 / 2), y.c[4095]);
  return kws_run() + (argv == 0);
}
""", native=False)
    a, b = (9000000000000000000 << 40) + 7, 1000003
    assert call(shop.link(app, shop.folder / "kws.o", lto=lto).path) == f"{a // b % 2**64} {a % b} 1 1\n"


@LTO
def test_what_is_missing_is_an_error(shop: Shop, lto: str) -> None:
    """52: never a jump to address 0."""
    app = shop.code("app", "int nowhere(void);\nint main(void) { return kws_run() + nowhere(); }\n", native=False)
    with pytest.raises(MonoblocError, match="nowhere"):
        shop.link(app, shop.folder / "kws.o", lto=lto)


@LTO
def test_wrapped_symbols(shop: Shop, lto: str) -> None:
    """54: `--wrap` of a function that LTO knows, and of one of a model's."""
    app = shop.code("app", """
#include <string.h>
#include <stdlib.h>
static int copies, runs;
void *__real_memcpy(void *, const void *, size_t); int __real_kws_run(void);
void *__wrap_memcpy(void *d, const void *s, size_t n) { copies++; return __real_memcpy(d, s, n); }
int __wrap_kws_run(void) { runs++; return __real_kws_run(); }
int main(int argc, char **argv) {
  char *to = malloc(100); memcpy(to, argv[0], strlen(argv[0]) < 100 ? strlen(argv[0]) : 99);
  int bad = kws_run(); printf("%c %d %d %d\\n", to[0], copies > 0, runs, bad); return 0;
}
""", native=False)
    image = shop.link(app, shop.folder / "kws.o", lto=lto, link_args=("--wrap=memcpy", "--wrap=kws_run"))
    assert call(image.path) == "/ 1 1 0\n"


def test_wrapped_symbols_without_models(shop: Shop) -> None:
    """54: the same by `monobloc cc`, in a program that holds no model."""
    (shop.folder / "w.c").write_text("""
#include <stdio.h>
#include <string.h>
void *__wrap_memcpy(void *d, const void *s, size_t n) { char *t = d; puts("wrapped");
  for (size_t i = 0; i < n; i++) ((volatile char *)t)[i] = ((const char *)s)[i]; return d; }
int main(int argc, char **argv) { char to[100]; memcpy(to, argv[0], argc * 2); return to[1] != argv[0][1]; }
""")
    cc = [sys.executable, "-m", "monobloc", "cc", "-O2"]
    call(*cc, "-flto", "w.c", "-Wl,--wrap=memcpy", "-o", "w", cwd=shop.folder)
    assert call(shop.folder / "w") == "wrapped\n"


INLINE = "inline int &counter() { static int n; return n; }\ninline int next() { return ++counter(); }\n"


@LTO
@pytest.mark.parametrize("archived", [False, True])
def test_inline_functions_in_both_kinds_of_objects(shop: Shop, lto: str, archived: bool) -> None:
    """55: one inline function in an LTO object and in a native one is one function, with one variable."""
    one = shop.code("one", INLINE + 'extern "C" int one() { return next(); }\n', native=False, suffix=".cpp")
    two = shop.code("two", INLINE + 'extern "C" int two() { return next(); }\n', suffix=".cpp")
    words: Sequence[Path] = [shop.archive("libone.a", one), shop.archive("libtwo.a", two)] if archived else [one, two]
    app = shop.code("app", "int one(void), two(void);\n"
                           'int main(void) { one(); two(); printf("%d\\n", one() + kws_run()); return 0; }\n', False)
    assert call(shop.link(app, *words, shop.folder / "kws.o", lto=lto).path) == "3\n"


@LTO
def test_one_symbol_in_two_archives(shop: Shop, lto: str) -> None:
    """57: the first archive is taken; two definitions that are both in are told with both members."""
    one = shop.archive("lib1.a", shop.code("rem1", "int rem_(int a) { return a % 7; }\n", native=False))
    two = shop.archive("lib2.a", shop.code("rem2", "int rem_(int a) { return a % 5; }\nint more(void) { return 0; }\n"))
    app = shop.code("app", 'int rem_(int);\nint main(void) { printf("%d\\n", rem_(13) + kws_run()); return 0; }\n')
    for words, answer in (((one, two), "6"), ((two, one), "3")):
        assert call(shop.link(app, *words, shop.folder / "kws.o", lto=lto).path) == f"{answer}\n"
    both = shop.code("both", "int rem_(int), more(void);\nint main(void) { return rem_(1) + more() + kws_run(); }\n")
    text = shop.told(both, one, two, shop.folder / "kws.o", lto=lto)
    assert "duplicate symbol: rem_" in text and "lib1.a" in text and "lib2.a" in text, text


@LTO
def test_equal_strings_and_local_names(shop: Shop, lto: str) -> None:
    """58: private strings and static functions of one name in several fat members, promoted by ThinLTO."""
    body = 'static const char *const words[] = {{"alpha", "beta", "{0}"}};\nstatic int table[] = {{{0}, 1, 2}};\n' \
           "__attribute__((noinline)) static int local(int i) {{ return table[i % 3] + words[i % 3][0]; }}\n" \
           "const char *word{0}(int i) {{ return words[i % 3]; }}\nint f{0}(int i) {{ return local(i); }}\n"
    lib = shop.archive("libs.a", *(shop.code(f"s{k}", body.format(k), native=False) for k in range(4)))
    calls = "".join(f'printf("%s%d ", word{k}(2), f{k}(0));' for k in range(4))
    types = "".join(f"const char *word{k}(int); int f{k}(int);" for k in range(4))
    app = shop.code("app", f"{types}\nint main(void) {{ {calls} return kws_run(); }}\n", native=False)
    want = "".join(f"{k}{k + ord('a')} " for k in range(4))
    assert call(shop.link(app, lib, shop.folder / "kws.o", lto=lto).path) == want


def test_without_lto_no_bitcode_is_compiled(shop: Shop) -> None:
    """60: a link without LTO takes the native code of fat objects, whatever else they hold."""
    o = replace(shop.o, debug=True)
    text = "int helper(int x) { return x * 3 + 1; }\n"
    helper_ = shop.code("helper", text, native=False)
    app = shop.code("app", "int helper(int);\n"
                           "int main(int c, char **v) { (void)v; return helper(c) - 4 + kws_run(); }\n", native=False)
    shop.o = o
    inlined = {}
    for lto in ("none", "thin", "full"):
        out = shop.link(app, helper_, shop.folder / "kws.o", lto=lto).path
        call(out)
        inlined[lto] = "helper" not in symbols(out)
    assert inlined == {"none": False, "thin": True, "full": True}
    job = toolchain.LinkJob("exe", (Path("a.o"),), Path("x"), o.target, lto="none")
    assert not [w for w in toolchain.link_command(job, job.out, toolchain.find_tools()) if "lto" in w]


# -- versions and keys ----------------------------------------------------------------------------------
@FOREIGN
def test_objects_of_another_llvm(shop: Shop, linker: str) -> None:
    """61: our objects say which LLVM made their bitcode; another one is a clear message, the native code links."""
    (obj,) = fat.read(shop.folder / "kws.o")
    assert obj.summary["llvm"] == toolchain.find_tools().llvm
    later = shop.folder / "later.o"
    data = bytearray((shop.folder / "kws.o").read_bytes())
    (record,) = elf.unpack_records(elf.get_section(data, fat.SUMMARY) or b"")
    summary = bytes(record)
    changed = summary.replace(obj.summary["llvm"].encode(), b"99" + obj.summary["llvm"][2:].encode())
    section = next(s for s in elf.sections(data) if s.name == fat.SUMMARY)
    packed = elf.pack_record(changed)
    assert len(packed) == section.size
    data[section.offset : section.offset + section.size] = packed
    later.write_bytes(data)
    text = shop.told(later, emit="shared")
    assert f"{later}: compiled with LLVM 99" in text and "compile the model again" in text
    assert call(foreign_link(linker, shop, shop.app("kws_run()"), later)) == "0\n"


# Every option, and a value that is not its default: in the image's key, or why it is not.
IN_KEY: dict[str, object] = {
    "target": resolve("host", "x86-64-v2" if resolve().name == "x86_64-linux" else None), "lto": "full",
    "graph_lto": False, "optimize": "size", "numerics": "strict", "threads": 3, "debug": True, "profile": True,
    "arenas": "own", "large_over": 5, "ram": 99, "flash": 99, "regions": (Region("r"),), "remarks": True,
}
IN_GRAPH = {"name", "shapes", "dims", "bind", "keep_outputs", "start_from", "connect", "used_by", "split_at",
            "partitions", "persist", "ignore_shapes", "strings", "max_trips", "max_values"}
# decided before: the graphs, their names and outputs are in the key
NOT_CACHED = {"dump", "link_args", "kernels"}  # such a link never takes an image from the cache
SAME_BYTES = {"jobs", "cache", "map"}  # may not change the image; the map is kept beside it


def test_every_option_is_in_the_key_or_said_not_to_matter(shop: Shop) -> None:
    """62: a cache that forgets an option gives the image of another. A new option must be sorted in here."""
    fields = {f.name for f in dataclasses.fields(Options)}
    known = {*IN_KEY, *IN_GRAPH, *NOT_CACHED, *SAME_BYTES}
    assert fields - known == set(), f"new options {sorted(fields - known)}: do they change an image?"
    assert known - fields == set()
    (module,) = (driver.read_module(x) for x in fat.read(shop.folder / "kws.o"))
    base = Options()
    keys = {"": image_key([module], "exe", base, ())}
    for name, value in IN_KEY.items():
        keys[name] = image_key([module], "exe", replace(base, **{name: value}), ())  # type: ignore[arg-type]
    keys["emit"] = image_key([module], "shared", base, ())
    keys["prefix"] = image_key([replace(module, prefix="other")], "exe", base, ())
    assert len(set(keys.values())) == len(keys)
    for name in SAME_BYTES:
        other = replace(base, **{name: {"jobs": 7}.get(name, Path("elsewhere"))})  # type: ignore[arg-type]
        assert image_key([module], "exe", other, ()) == keys[""], name


def test_every_weight_and_attribute_is_in_the_key(shop: Shop) -> None:
    """62: a change of one bit of a weight is another module."""
    keys = {module_key(driver.read_module(x)) for n in NAMES for x in fat.read(shop.folder / f"{n}.o")}
    assert len(keys) == len(NAMES)  # their graphs differ in the seed of their weights alone


@pytest.mark.parametrize("lto", ["thin", "full"])
def test_a_program_with_archives_is_reproducible(shop: Shop, lto: str, tmp_path: Path) -> None:
    """63: other folders, numbers of jobs and of the linker's threads give the same bytes."""
    images = []
    for k, jobs in enumerate((1, 2)):
        folder = tmp_path / ("a" * (1 + 40 * k))
        folder.mkdir()
        here = Shop(folder, tmp_path / f"cache{k}", shop.folder)
        here.o = replace(here.o, jobs=jobs, lto=lto, cache=None)  # type: ignore[arg-type]
        util = [here.code(f"u{i}", f"int u{i}(int x) {{ return x * {i} + 3; }}\n", native=False) for i in range(3)]
        lib = here.archive("libmix.a", "vad", *util, "kws")
        app = here.code("app", "int u0(int), u2(int);\n"
                               "int main(void) { return kws_run() + vad_run() + u0(0) - u2(0); }\n", native=False)
        images.append(here.link(app, lib).path.read_bytes())
    assert images[0] == images[1]


# -- code -----------------------------------------------------------------------------------------------
@X86
@pytest.mark.parametrize("lto", ["thin", "full"])
def test_code_of_different_features_stays_apart(shop: Shop, lto: str) -> None:
    """65: baseline code never takes in AVX-512 kernels, so the check of the CPU runs before any of them."""
    o = replace(shop.o, target=resolve("x86_64-linux", "x86-64-v4"), lto=lto, debug=True)  # type: ignore[arg-type]
    app = shop.folder / "app.c"
    app.write_text(HEADERS + "float use(void) { float *x = kws_in_x(); for (int i = 0; i < 16; i++) x[i] = i;"
                   " kws_run(); float s = 0; for (int i = 0; i < 16; i++) s += kws_out_y()[i]; return s; }\n"
                   "int main(void) { return use() > 1e9f; }\n")
    made = shop.folder / "base.o"
    driver.compile_source(app, made, replace(o, target=o.target.baseline()))
    driver.link([made, shop.folder / "kws.o"], shop.folder / "wide", "exe", o)
    code = disassembly(shop.folder / "wide")
    wide = {name for name, text in code.items() if "%zmm" in text or "%ymm" in text}
    assert wide, "the kernels use no AVX-512: nothing is tested"
    assert "main" in code  # thin and full may have taken kws_run into it
    assert not [n for n in wide if n in ("main", "use") or n.startswith(("kws_", "mb_cpu"))]


@pytest.mark.parametrize("lto", ["thin", "full"])
def test_debug_info_survives_lto(shop: Shop, lto: str) -> None:
    """68, 69: nothing refers to what was dropped, and what is said of inlined calls is consistent."""
    shop.o = replace(shop.o, debug=True, lto=lto)  # type: ignore[arg-type]
    lib = shop.archive("libd.a", shop.code("d1", "const char *who(void) { return __func__; }\n", native=False),
                       shop.code("d2", "static int twice(int x) { return 2 * x; }\n"
                                       "int four(int x) { return twice(twice(x)); }\n", native=False))
    app = shop.code("app", 'const char *who(void); int four(int); int (*volatile run)(void) = kws_run;\n'
                           'int main(int c, char **v) { (void)v; printf("%s %s %d\\n", __func__, who(), four(c));'
                           ' return run(); }\n', native=False)
    out = shop.link(app, lib, shop.folder / "kws.o").path
    assert call(out) == "main who 4\n"
    assert not [s.name for s in elf.symbols(out.read_bytes()) if not s.defined and s.name.startswith((".L", ".Ltmp"))]
    assert {".debug_info", ".debug_line"} <= {s.name for s in elf.sections(out.read_bytes())}
    verify = [tool("llvm-dwarfdump-22", "llvm-dwarfdump"), "--verify", out]
    done = subprocess.run(verify, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("native", [False, True])
def test_split_debug_info_in_a_library_only(shop: Shop, native: bool) -> None:
    """70: an archive compiled with `-gsplit-dwarf`, an application without."""
    source = shop.folder / "lib.c"
    source.write_text("static inline int twice(int x) { return 2 * x; }\nint lib(int x) { return twice(x) + 1; }\n")
    if native:
        call(tool("gcc"), "-g", "-gsplit-dwarf", "-c", source, "-o", shop.folder / "lib.o", cwd=shop.folder)
    else:
        job = toolchain.CompileJob(source, shop.folder / "lib.o", shop.o.target, "fat", hosted=True,
                                   extra=("-gdwarf-4", "-gsplit-dwarf"))
        toolchain.compile_all([job])
    shop.o = replace(shop.o, debug=True, lto="thin")
    app = shop.code("app", 'int lib(int);\nint main(void) { printf("%d\\n", lib(3) + kws_run()); return 0; }\n', False)
    out = shop.link(app, shop.archive("libl.a", "lib"), shop.folder / "kws.o").path
    assert call(out) == "7\n"
    gdb = call(tool("gdb"), "-batch", "-ex", "break kws_run", "-ex", "run", "-ex", "backtrace", out)
    assert re.search(r"#\d+ .*main \(", gdb), gdb


# -- names ----------------------------------------------------------------------------------------------
@FOREIGN
def test_models_share_no_names(shop: Shop, linker: str) -> None:
    """72: three models in one program; all that is global of each begins with its own prefix."""
    for n in NAMES:
        visible = [s for s in elf.symbols((shop.folder / f"{n}.o").read_bytes())
                   if s.defined and s.bind == elf.STB_GLOBAL and s.visibility == elf.STV_DEFAULT]
        assert visible and all(s.name.startswith(f"{n}_") for s in visible), [s.name for s in visible]
    app = shop.app(*(f"{n}_run()" for n in NAMES))
    assert call(foreign_link(linker, shop, app, *(shop.folder / f"{n}.o" for n in NAMES))) == "0\n0\n0\n"


@LTO
def test_interfaces_are_plain_c(shop: Shop, lto: str) -> None:
    """75: nothing of C++ at the border, so no ABI of it either; a closed object and a library show the interface."""
    paths = [shop.folder / f"{n}.o" for n in NAMES]
    prefixes = tuple(f"{n}_" for n in NAMES)
    closed = shop.folder / "closed.o"
    driver.link(paths, closed, "object", replace(shop.o, lto=lto))  # type: ignore[arg-type]
    names = [s.name for s in elf.symbols(closed.read_bytes()) if s.defined and s.bind == elf.STB_GLOBAL and s.name]
    assert names and not [n for n in names if not n.startswith((*prefixes, "mb_w_", "mb_"))]
    library = shop.link(*paths, emit="shared", lto=lto).path
    exported = {s.name for s in elf.linked_symbols(library.read_bytes()) if s.defined and s.name}
    assert not [n for n in exported if not n.startswith((*prefixes, "monobloc_model", "mb_info_"))], exported
    missing = {s.name for s in elf.linked_symbols(library.read_bytes()) if not s.defined and s.name}
    assert missing <= {"memcpy", "memset", "memmove"}, missing


def test_a_small_operator_is_small(shop: Shop) -> None:
    """74: an addition brings no other kernels, no dtypes that nobody asked for, no C++ library."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64]) for n in "abc"]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "add", ports[:2], ports[2:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), shop.folder / "add.onnx")
    out = shop.folder / "add.so"
    driver.build([shop.folder / "add.onnx"], out, "shared", replace(shop.o, lto="thin"))
    code = sum(s.size for s in elf.sections(out.read_bytes()) if s.flags & elf.SHF_EXECINSTR)
    assert code < 4096, f"{code} bytes of code"
    x = np.arange(64, dtype=np.float32)
    assert np.array_equal(CompiledModel(out).run({"a": x, "b": x})["c"], x + x)


def test_tables_are_as_long_as_their_content(shop: Shop) -> None:
    """77: no table has a fixed number of places: a model of 300 outputs, and its names, all read back."""
    count = 300
    ports = [helper.make_tensor_value_info(f"out{k}", TensorProto.FLOAT, [1]) for k in range(count)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [count])
    node = helper.make_node("Split", ["x"], [p.name for p in ports], axis=0, num_outputs=count)
    graph = helper.make_graph([node], "wide", [x], ports)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), shop.folder / "wide.onnx")
    driver.build([shop.folder / "wide.onnx"], shop.folder / "wide.so", "shared", shop.o)
    got = CompiledModel(shop.folder / "wide.so").run({"x": np.arange(count, dtype=np.float32)})
    assert [float(got[f"out{k}"][0]) for k in range(count)] == list(range(count))
