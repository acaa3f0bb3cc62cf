"""The documents say what is: links lead somewhere, generated pages are fresh, commands exist, examples run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"`([\w./-]+\.(?:py|h|c|sh|onnx|toml)|[\w-]+/(?:[\w.-]+/)*)`")
ROOTS = [
    ROOT,
    ROOT / "monobloc",
    ROOT / "monobloc" / "csrc",
    *(p for p in (ROOT / "monobloc").rglob("*") if p.is_dir()),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = [x for x in LINK.findall(text) if not (page.parent / x).exists()]
    assert not gone, f"{page.name} links to {gone}"


def test_files_named_by_the_architecture_exist() -> None:
    named = set(FILE.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))) - {"monobloc.toml"}
    assert len(named) > 40
    gone = sorted(n for n in named if not any((r / n).exists() for r in ROOTS))
    assert not gone, f"ARCHITECTURE.md names {gone}"


def test_every_folder_of_the_package_is_explained() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    package = ROOT / "monobloc"
    folders = [p.name for p in package.iterdir() if any(p.glob("*.*")) and not p.name.startswith("_")]
    assert not [f for f in folders if f"`{f}/`" not in text]


def test_generated_pages_are_fresh() -> None:
    made = subprocess.run([sys.executable, "tools/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, f"{made.stdout}{made.stderr}\nrun: python tools/gen_docs.py"


def commands() -> list[tuple[str, str]]:
    """(page, command) of every command line in a code block."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            lines = [line.split("   ")[0].split(" # ")[0] for line in block.splitlines()]
            found += [(page.name, line) for line in lines if line.startswith("monobloc ")]
    return found


def test_commands_in_the_documents_exist() -> None:
    from monobloc.cli.app import app

    verbs = {n: {o for p in c.params for o in p.opts} for n, c in app.commands.items()}
    found = commands()
    assert len(found) > 20
    for page, line in found:
        verb = line.split()[1]
        if verb == "VERB":
            continue
        assert verb in verbs, f"{page}: {line}"
        for flag in re.findall(r" (--?[A-Za-z][\w-]*)", line):
            assert flag in verbs[verb] | {"--help"}, f"{page}: {line}: no option {flag}"


# -- examples run ---------------------------------------------------------------------------------------
def test_python_of_the_readme_runs() -> None:
    (code,) = blocks(ROOT / "README.md", "python")
    made = python(code)
    assert made.returncode == 0, made.stderr
    assert "Plus214_Output_0" in made.stdout


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_c_example_links_with_gcc(tmp_path: Path) -> None:
    monobloc = [sys.executable, "-m", "monobloc"]
    made = tmp_path / "mnist8.o"
    subprocess.run([*monobloc, "compile", "examples/mnist8.onnx", "-o", str(made)], cwd=ROOT, check=True)
    app = tmp_path / "app"
    subprocess.run(["gcc", "examples/app.c", str(made), f"-I{tmp_path}", "-o", str(app)], cwd=ROOT, check=True)
    assert subprocess.run([str(app)], capture_output=True, text=True, check=True).stdout == "class 1\n"


USE_NEW_OPERATOR = """
import sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto as T, helper as h
sys.path[:0] = ["tests/ops"]
import monobloc.ops
monobloc.ops.__path__.append(sys.argv[1])        # as if the file lay in the folder
import monobloc
from eval_expr import eval_node
from monobloc.ir.graph import Graph
from monobloc.ir.types import DType, TensorType
from monobloc.ops import registry

op = registry()["Wave"]
for case in op.cases(np.random.default_rng(1)):  # the expression against the reference, no compiler
    g = Graph("g")
    ins = [g.add_input(f"x{k}", TensorType(DType.of(x.dtype), x.shape)) for k, x in enumerate(case.inputs)]
    node = g.make(op.name, ins, op.infer(ins, case.attrs), case.attrs)
    (at, got), = eval_node(node, dict(zip(ins, case.inputs)))
    want = op.ref(case.attrs, *case.inputs)
    np.testing.assert_allclose(got, want.ravel()[at], rtol=1e-5, atol=1e-6)

x, y = (h.make_tensor_value_info(n, T.FLOAT, [3, 40]) for n in "xy")
nodes = [h.make_node("Neg", ["x"], ["t"], name="neg"),
         h.make_node("Wave", ["t"], ["y"], name="silu", domain="com.example", alpha=1.5)]
model = h.make_model(h.make_graph(nodes, "g", [x], [y]), ir_version=10,
                     opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.example", 1)])
data = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
got = monobloc.compile(model)(data)              # fused with its neighbour, through C and the link
np.testing.assert_allclose(got, op.ref({"alpha": 1.5}, -data), rtol=2e-5, atol=4e-6)
print("fine")
"""


def test_adding_an_operator_is_one_class_in_one_file(tmp_path: Path) -> None:
    (code,) = blocks(ROOT / "docs" / "add-an-op.md", "python")
    (tmp_path / "wave.py").write_text(code, encoding="utf-8")
    made = python(USE_NEW_OPERATOR, str(tmp_path))
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip().endswith("fine")
    without = python(USE_NEW_OPERATOR.replace("monobloc.ops.__path__.append(sys.argv[1])", "pass"), str(tmp_path))
    assert "Wave" in without.stderr, "the operator is there without its file: choose another example"
