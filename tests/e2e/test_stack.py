"""The stack bound in an image: never under what a painted run uses, never absurdly over it."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

from monobloc.driver import Build, build, compile_to_object, link
from monobloc.errors import InternalError, LinkError
from monobloc.link import stack
from monobloc.object import elf, toolchain
from monobloc.object.toolchain import CompileJob, LinkJob
from monobloc.options import Options
from monobloc.targets import resolve

ROOT = Path(__file__).resolve().parents[2]
LTO = ("none", "thin", "full")
MODELS = ("examples/mnist8.onnx", "tests/models/unet_small.onnx", "tests/models/encoder_small.onnx")
ZOO = ("byte_sb_bidi_lstm", "dtln_1", "emx_micro_kws_m_static_fp32", "winml_iris_mlp")
DIMS = {"byte_sb_bidi_lstm": {"length": 20}}


def painted(exe: Path) -> tuple[int, int, int]:
    done = subprocess.run([exe, "--stack", "--seed", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = re.search(r"stack bytes: main (\d+) worker (\d+) bound (\d+)", done.stdout)
    assert found, done.stdout
    return int(found[1]), int(found[2]), int(found[3])


def check(made: Build) -> None:
    main, worker, bound = painted(made.path)
    if not made.image.cached:
        assert bound == made.programs[0].interface.stack_bound
    assert max(main, worker) <= bound <= 4 * main, (main, worker, bound)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("lto", LTO)
@pytest.mark.parametrize("model", MODELS)
def test_no_run_uses_more_than_the_bound(model: str, lto: str, threads: int, tmp_path: Path) -> None:
    o = Options(lto=lto, threads=threads, cache=None)  # type: ignore[arg-type]
    made = build([ROOT / model], tmp_path / "exe", "exe", o)
    check(made)
    assert not [s for s in elf.sections(made.path.read_bytes()) if "stack_sizes" in s.name or s.name == ".symtab"]


@pytest.mark.parametrize("name", ZOO)
def test_models_of_the_zoo(name: str, shared: Path, cache: Path, tmp_path: Path) -> None:
    o = Options(threads=2, cache=cache, dims=DIMS.get(name, {}))
    made = build([shared / "models" / f"{name}.onnx"], tmp_path / "exe", "exe", o)
    check(made)


def test_objects_state_it_too(cache: Path, tmp_path: Path) -> None:
    o = Options(graph_lto=False, lto="none", cache=cache)
    compile_to_object(ROOT / "examples/mnist8.onnx", tmp_path / "m.o", o)
    link([tmp_path / "m.o"], tmp_path / "exe", "exe", o)
    main, _, bound = painted(tmp_path / "exe")
    assert main <= bound <= 4 * main + stack.FOREIGN
    data = (tmp_path / "m.o").read_bytes()
    info = next(s for s in elf.symbols(data) if s.name == "mb_info_mnist8")
    at = elf.sections(data)[info.section].offset + info.value
    assert 100 < struct.unpack_from("<II48xQ", data, at)[2] < 4096
    for suffix, emit in ((".so", "shared"), (".a", "archive")):
        made = build([ROOT / "examples/mnist8.onnx"], tmp_path / f"x{suffix}", emit, Options(cache=None))  # type: ignore[arg-type]
        assert 100 < made.programs[0].interface.stack_bound < 4096, emit


def graph_of(text: str, folder: Path) -> stack.CallGraph:
    """A C text, linked as an image is."""
    t = resolve()
    flags = ("-Wno-infinite-recursion",)
    obj = folder / "t.o"
    toolchain.compile_all([CompileJob(text.encode(), obj, t, name="t.c", opt="size", extra=flags)])
    job = LinkJob("exe", (obj,), folder / "t", t, entry="m_run", extra=stack.LINK_FLAGS)
    return stack.read_calls(toolchain.link(job).out.read_bytes())


def test_an_address_behind_data_is_no_call(tmp_path: Path) -> None:
    """A loop that counts up to zero begins at the end of its data: whatever lies there is not called."""
    if resolve().arch != "x86_64":
        pytest.skip("in x86 assembly")
    text = """
    const char data[64] = {1};
    void leaf(void);
    int m_run(void) { leaf(); leaf(); return data[1]; }
    __attribute__((noinline)) void leaf(void) {
      __asm__ volatile(".set at, 0\\n .rept 1024\\n lea data+at(%%rip), %%rax\\n .set at, at + 8\\n .endr" ::: "rax");
    }
    """
    graph = graph_of(text, tmp_path)
    assert graph.calls[graph.address["m_run"]] == (graph.address["leaf"],)
    assert not graph.calls.get(graph.address["leaf"])


CALL = "__attribute__((noinline, used)) void use(volatile char *p) { *p = 1; }\n"


def test_the_deepest_path_counts(tmp_path: Path) -> None:
    text = CALL + """
    static __attribute__((noinline)) void small(void) { volatile char b[100]; use(b); use(b + 1); }
    static __attribute__((noinline)) void large(void) { volatile char b[3000]; use(b); small(); use(b); }
    void m_run(void) { small(); large(); small(); }
    """
    got = stack.bound(graph_of(text, tmp_path), "m_run")
    assert got is not None and 3100 <= got <= 3100 + 4 * (stack.RETURN + stack.VECTOR) + stack.RED_ZONE + 64


def test_what_the_pool_is_handed_counts_as_called_by_it(tmp_path: Path) -> None:
    text = CALL + """
    static int layer_a(char *p, int i, int n) { volatile char b[5000]; use(b + i); use(b + n); return *p; }
    __attribute__((noinline)) int mb_parallel_upto(int (*f)(char *, int, int), char *p, int n) {
      volatile char b[700]; use(b); n = f(p, 0, n); use(b); return n; }
    int m_run(void) { char c = 0; int e = mb_parallel_upto(layer_a, &c, 2); use(&c); return e; }
    """
    got = stack.bound(graph_of(text, tmp_path), "m_run")
    assert got is not None and 5700 <= got <= 6300


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("int m_run(int n) { volatile char b[n]; use(b); return b[n - 1]; }", "`m_run` is not constant"),
        (
            "static int g(int n);\n"
            "__attribute__((noinline)) static int f(int n) { char c; use(&c); return n ? g(n - 1) + c : c; }\n"
            "__attribute__((noinline)) static int g(int n) { char c; use(&c); return n ? f(n - 2) - c : c; }\n"
            "int m_run(int n) { return f(n) + g(n); }",
            r"f calls g calls f|g calls f calls g",
        ),
    ],
)
def test_stacks_without_a_bound_are_errors(body: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=why):
        stack.bound(graph_of(CALL + body, tmp_path), "m_run")


def test_an_address_behind_an_object_is_no_call(tmp_path: Path) -> None:
    """Kernels fetch ahead, past the end of weights where they are the last: what lies there is not theirs."""
    ahead = "".join(f'__asm__ volatile("prefetcht0 weights+{at}(%rip)");' for at in range(256, 32000, 8))
    text = CALL + """
    __attribute__((used)) const float weights[64] = {1};
    __attribute__((noinline)) int m_run(int n);
    static __attribute__((noinline)) int fetch(int n) { AHEAD char c; use(&c); return c + n; }
    int m_run(int n) { char c; use(&c); n = fetch(n + 1) + 1; use(&c); return n + c; }
    """.replace("AHEAD", ahead)
    if resolve().arch != "x86_64":
        pytest.skip("the instruction is of x86-64")
    got = stack.bound(graph_of(text, tmp_path), "m_run")
    assert got is not None and got < 600


def test_a_worker_must_fit(tmp_path: Path) -> None:
    text = CALL + """
    __attribute__((noinline)) int worker(void) { volatile char b[9000]; use(b); return b[1]; }
    int m_run(void) { return worker() + 1; }
    """
    graph = graph_of(text, tmp_path)
    with pytest.raises(LinkError, match="a worker needs 9"):
        stack.check_workers(graph, 8000)
    stack.check_workers(graph, 10000)
