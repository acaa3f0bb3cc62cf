"""An operator is one class in one file of `ops/`: nobody else has to know its name.

Passes and front ends name the operators that they rewrite or write. What comes after them knows none but those whose
elements stay where they are, or that hold others.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import monobloc
from monobloc.ops import OpDef, registry

ROOT = Path(monobloc.__file__).parent
REWRITERS = ("ops/", "passes/", "frontend/")
KNOWN = {
    "codegen/foreign.py": {"Foreign"},  # a layer of somebody else's library
    "link/foreign.py": {"Foreign"},
    "codegen/unit.py": {"Fused", "Reshape"},
    "codegen/loops.py": {"Concat", "Reshape"},
    "codegen/place.py": {"Concat", "Copy", "DepthToSpace", "Fused", "Reshape", "Slice", "SpaceToDepth", "Transpose"},
    "ir/interp.py": {"Sized"},
    "link/objects.py": {"Transpose"},  # weights that are permutations of others
    "verify_run.py": {"QuantizeLinear"},  # what may differ by a step
    "feeds.py": {"Bounded", "Cast", "Expand", "Flatten", "Gather", "Identity", "RangeExtent", "Reshape", "Slice",
                 "Squeeze", "Transpose", "Unsqueeze"},  # what made-up indices and bounds come through
}


def named() -> Iterator[tuple[str, str]]:
    """Operators that a file names, as (file, name)"""
    names = set(registry())
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                yield path.relative_to(ROOT).as_posix(), node.value


def test_what_compiles_and_links_knows_no_operator() -> None:
    found: dict[str, set[str]] = {}
    for file, name in named():
        if not file.startswith(REWRITERS):
            found.setdefault(file, set()).add(name)
    assert found == KNOWN


def test_most_operators_are_named_by_nobody() -> None:
    public = {n for n, op in registry().items() if not op.internal}
    elsewhere = {name for file, name in named() if not file.startswith(("ops/", "frontend/tflite/", "frontend/torch/"))}
    assert len(public & elsewhere) < len(public) / 2


def test_every_name_is_read_by_one_class_in_the_file_where_it_stands() -> None:
    read = Counter[tuple[str, str]]()
    for op in registry().values():
        assert type(op).__module__.startswith("monobloc.ops.") and isinstance(op, OpDef)
        for name in () if op.internal else (op.name, *op.aliases):
            domain, _, short = name.rpartition("::")
            read[domain or op.domain, short] += 1
    assert not [n for n, count in read.items() if count > 1]
