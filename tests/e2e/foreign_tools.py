"""A kernel library in every form that compilers leave one in, and half-float models that use it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from monobloc.driver import read_kernels
from monobloc.object import toolchain
from monobloc.options import Options

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "foreign-gemm"
SEED = 3
FORMS = {
    "plain": ("-ffunction-sections", "-emit-llvm"),
    "thin": ("-ffunction-sections", "-flto=thin"),
    "full": ("-ffunction-sections", "-flto=full"),
    "fat": ("-ffunction-sections", "-flto=full", "-ffat-lto-objects"),
    "embedded": ("-fembed-bitcode",),
    "native": ("-ffunction-sections",),
}
PATHS = ("f32", "f16", "i8")
MARK = {"f32": 0x51F32A01, "f16": 0x51F16A02, "i8": 0x51080A03}
BASELINE = ("-march=x86-64-v3",)


def marked(text: str) -> str:
    """The example's source, where every path stores a number of its own and one made of its sizes."""
    for path in PATHS:
        store = f"ug_mark = {MARK[path]:#x}; ug_sizes = p->m * 1000003 + p->n * 1009 + p->k;"
        text, n = re.subn(rf"(static void gemm_{path}\([^{{]*\{{)", rf"\1 {store}", text)
        assert n == 1, path
    return text.replace("struct product", "volatile int ug_mark, ug_sizes;\nstruct product", 1)


def sizes(m: int, n: int, k: int) -> bytes:
    return (m * 1000003 + n * 1009 + k).to_bytes(4, "little")


def mark(path: str) -> bytes:
    return MARK[path].to_bytes(4, "little")


def compile_c(text: str, out: Path, form: str, flags: Sequence[str] = BASELINE) -> Path:
    """C as an object of this form, by the toolchain's own clang; `out` may be in a new folder."""
    tools = toolchain.find_tools()
    out.parent.mkdir(parents=True, exist_ok=True)
    source = out.with_suffix(".c")
    source.write_text(text)
    common = ("-O2", "-fPIC", "-ffreestanding", "-fno-stack-protector", f"-I{EXAMPLE}")
    command = [*tools.clang, f"--target={Options().target.triple}", *tools.headers, *common, *flags, *FORMS[form]]
    subprocess.run([*command, "-c", source, "-o", out], check=True)
    return out


def library(folder: Path, form: str, text: str | None = None, name: str = "ugemm") -> Path:
    """The archive, and beside it the example's header and rows."""
    source = text if text is not None else marked((EXAMPLE / "ugemm.c").read_text())
    made = toolchain.archive([compile_c(source, folder / "objects" / f"{name}.o", form)], folder / f"lib{name}.a")
    for copied in ("ugemm.h", "kernels.toml"):
        (folder / copied).write_bytes((EXAMPLE / copied).read_bytes())
    return made


def rows(folder: Path, *tables: str) -> Path:
    path = folder / "rows.toml"
    path.write_text("\n".join(f"[[kernel]]\n{t}\n" for t in tables))
    return path


def options(folder: Path, file: str = "kernels.toml", **more: object) -> Options:
    return Options(kernels=read_kernels([folder / file]), cache=None, **more)  # type: ignore[arg-type]


def save(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], x: tuple[int, ...],
         y: tuple[int, ...], dtype: type = np.float16) -> Path:
    kind = {np.float16: TensorProto.FLOAT16, np.float32: TensorProto.FLOAT}[dtype]  # type: ignore[index]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, x)],
                              [helper.make_tensor_value_info("y", kind, y)],
                              [numpy_helper.from_array(w, k) for k, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def half_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    shapes = {"w1": (64, 48), "w2": (48, 80), "w3": (80, 10)}
    return {k: (rng.standard_normal(s) / 8).astype(np.float16) for k, s in shapes.items()}


def half_model(path: Path) -> Path:
    """Three products of half floats."""
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w1"], ["h1"], "fc1"), node("Relu", ["h1"], ["r1"], "act"),
             node("MatMul", ["r1", "w2"], ["h2"], "fc2"), node("MatMul", ["h2", "w3"], ["y"], "fc3")]
    return save(path, nodes, half_weights(), (8, 64), (8, 10))


def half_input() -> np.ndarray:
    return np.random.default_rng(SEED + 1).standard_normal((8, 64)).astype(np.float16)


def half_answer(x: np.ndarray) -> np.ndarray:
    w = {k: v.astype(np.float32) for k, v in half_weights().items()}

    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a.astype(np.float32) @ b).astype(np.float16)

    return product(product(np.maximum(product(x, w["w1"]), 0), w["w2"]), w["w3"])
