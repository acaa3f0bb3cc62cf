"""Imports point one way, and only files of `targets/` name a machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import monobloc

ROOT = Path(monobloc.__file__).parent
# Who may import whom: a layer imports itself and what stands before it.
LAYERS = (
    ("errors", "wildcards"),
    ("targets", "plan", "kernels", "cache"),
    ("ir", "options"),
    ("ops",),
    ("frontend", "passes"),
    ("codegen",),
    ("object",),
    ("link", "loader"),
    ("driver",),
    ("litert", "eager", "torch_backend"),
    ("oracles",),
    ("report", "feeds", "run_image", "verify_run", "bench_run"),
    ("drivers",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: k for k, layer in enumerate(LAYERS) for name in layer}
# Imports inside of functions that point back, each for a reason.
BACK = {
    ("ir/verify.py", "ops"),  # the verifier asks the operators for types
    ("ir/interp.py", "ops"),  # what a node means is its operator's reference
    ("loader.py", "driver"),  # InferenceSession takes models too
}


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.name, node) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                (f"{node.module}.{a.name}" if node.module == "monobloc" else node.module, node) for a in node.names
            )


def part(name: str) -> str:
    """The folder or file of the package that an import names."""
    pieces = name.split(".")
    found = pieces[1] if len(pieces) > 1 else "__init__"
    return found if (ROOT / found).is_dir() or (ROOT / f"{found}.py").is_file() else "__init__"


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def test_every_part_has_a_layer() -> None:
    parts = {p.relative_to(ROOT).parts[0].removesuffix(".py") for p in files()}
    assert parts <= set(RANK), f"no layer for {sorted(parts - set(RANK))}: add it to LAYERS"


def test_imports_point_one_way() -> None:
    wrong = []
    for path in files():
        rel = path.relative_to(ROOT)
        here = rel.parts[0].removesuffix(".py")
        for name, node in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if name.split(".")[0] != "monobloc" or (there := part(name)) == here:
                continue
            if name == "monobloc.__version__":
                continue
            inside = node.col_offset > 0  # type: ignore[attr-defined]
            if RANK[there] > RANK[here] and not (inside and (rel.as_posix(), there) in BACK):
                wrong.append(f"{rel}: imports {name}, which stands above it")
    assert not wrong, "\n".join(wrong)


def test_the_rule_can_fail() -> None:
    assert RANK["ir"] < RANK["ops"] < RANK["passes"] < RANK["codegen"] < RANK["object"] < RANK["link"] < RANK["cli"]
    assert [n for n, _ in imports(ast.parse("def f():\n    from monobloc.cli import main"))] == ["monobloc.cli"]


def test_only_targets_name_a_machine() -> None:
    from monobloc import targets

    words = [n for n in targets.names()] + [c for n in targets.names() for c in targets.cpus(n)]
    wrong = []
    for path in files():
        if path.is_relative_to(ROOT / "targets"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        heads = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef)) and n.body]
        docs = {id(n.body[0].value) for n in heads if isinstance(n.body[0], ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                wrong += [f"{place}: {w}" for w in words if node.value == w]
    assert not wrong, "\n".join(wrong)
