"""Reading a .pt2 file without trusting it.

`torch.export.load` trusts what it reads: where tensors were pickled it runs what the pickle says, sizes are Python
expressions that it evaluates, calls name any function under `torch`, and compiled code in the file is opened as a
library. So the file is looked through first, with `zipfile` and `json` only: what could run anything but ATen's
operators on tensors is an error. What passes is handed to PyTorch's own loader.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import logging
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any

import torch

from monobloc.errors import ModelError, UnsupportedError
from monobloc.frontend.sniff import is_exported
from monobloc.frontend.torch.structures import register

MAX_JSON = 1 << 28
TARGET = re.compile(r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\.sym_\w+|torch\._sym_\w+|_operator\.\w+|math\.\w+", re.ASCII)
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
FUNCTION = re.compile(r"[A-Z][A-Za-z]*", re.ASCII)  # as sympy and PyTorch call theirs
# Operators that PyTorch's own programs call and other packages define: by their prefix, what defines them.
LIBRARIES = {"torchvision": "torchvision", "transformers": "transformers.integrations.moe"}
TRUST = "if you trust it: `monobloc.compile(torch.export.load(PATH))` in Python"


def load(path: Path | None, data: bytes | None) -> Any:
    """The ExportedProgram in a file, or in the bytes of one"""
    source: Any = io.BytesIO(data) if data is not None else str(path)
    try:
        with zipfile.ZipFile(source) as z:
            for program in check(z):
                register(program)
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as e:
        raise ModelError(f"is no file of `torch.export.save`, or is damaged: {e}") from None
    if data is not None:
        source.seek(0)
    with quietly():
        try:
            return torch.export.load(source)
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0][:200]
            raise ModelError(f"PyTorch {torch.__version__} cannot read the program: {type(e).__name__}: {first}",
                             hints=["export it again with this version of PyTorch"]) from e


@contextmanager
def quietly() -> Iterator[None]:
    """What PyTorch says while it works goes to nobody: errors are raised besides."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # it prints whole programs there
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# -- looking through it -------------------------------------------------------------------------------
def check(z: zipfile.ZipFile) -> list[Any]:
    """The programs as JSON; UnsupportedError for what may run code, ModelError for what is no export"""
    names = z.namelist()
    if len(set(names)) < len(names):
        raise ModelError("holds two members of one name")
    programs = [n for n in names if is_exported(n)]
    if not programs:
        raise ModelError("is a zip file, but none that `torch.export.save` wrote")
    for name in names:
        if "/aotinductor/" in name or name.endswith((".so", ".dll", ".dylib")):
            raise UnsupportedError(f"holds compiled code (`{name}`)",
                                   hints=["save the exported program itself: `torch.export.save(program, PATH)`"])
        if re.search(r"/(custom_obj|opaque_obj)_\d+$", name):
            raise UnsupportedError(f"holds Python objects (`{name}`), and to read those runs what they say",
                                   hints=[TRUST])
        if name.endswith(".pt") or re.search(r"/data/constants/tensor_\d+$", name) is None and name.endswith(".pkl"):
            _check_pickle(z, name)
        if name.endswith("_config.json"):
            _check_payloads(z, name)
    found = [_json(z, name) for name in programs]
    for program, name in zip(found, programs, strict=True):
        _check_program(program, f"`{name}`")
    return found


def _json(z: zipfile.ZipFile, name: str) -> Any:
    if z.getinfo(name).file_size > MAX_JSON:
        raise ModelError(f"`{name}` is too large")
    try:
        return json.loads(z.read(name))
    except (ValueError, RecursionError, zipfile.BadZipFile) as e:
        raise ModelError(f"is damaged: `{name}` is no JSON ({str(e)[:100]})") from None


def _check_pickle(z: zipfile.ZipFile, name: str) -> None:
    data = z.read(name)
    if not data:
        return
    with quietly():
        try:
            torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0][:120]
            raise UnsupportedError(f"`{name}` holds more than tensors, or is damaged, and to read it would run what "
                                   f"it says ({first})", hints=[TRUST]) from None


def _check_payloads(z: zipfile.ZipFile, name: str) -> None:
    """Tensors that were pickled one by one"""
    config = _json(z, name)
    folder = name.rpartition("/")[0]
    for key, entry in (config.get("config") or {}).items() if isinstance(config, dict) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("path_name"), str):
            raise ModelError(f"is damaged: `{name}` does not say where `{key}` lies")
        if entry.get("use_pickle"):
            member = f"{folder}/{entry['path_name']}"
            if member not in z.namelist():
                raise ModelError(f"is damaged: `{member}` is missing")
            _check_pickle(z, member)


def _check_program(found: Any, where: str) -> None:
    """Every call names an operator, every size is arithmetic, every structure is one of PyTorch's own."""
    stack, foreign = [found], Counter[str]()
    while stack:
        x = stack.pop()
        if isinstance(x, list):
            stack += x
        elif isinstance(x, str) and ("default_factory_module" in x or "__enum__" in x):
            raise UnsupportedError(f"{where}: inputs or outputs in containers of classes of their own", hints=[TRUST])
        elif isinstance(x, dict):
            stack += x.values()
            if "target" in x and "inputs" in x:
                _check_target(x["target"], where)
                foreign[x["target"]] += not _is_known(x["target"])
            if isinstance(x.get("expr_str"), str):
                check_expression(x["expr_str"], where)
            for key in x.get("range_constraints") or () if isinstance(x.get("range_constraints"), dict) else ():
                check_expression(key, where)
    if named := [f"{target.removeprefix('torch.ops.')} ({count})" for target, count in foreign.items() if count]:
        missing = sorted({lib for n in named for lib in LIBRARIES if n.startswith(f"{lib}.")})
        hints = [f"pip install {' '.join(missing)}, which defines them"] if missing else []
        raise UnsupportedError(f"{where} calls operators that PyTorch does not have: {', '.join(sorted(named))}",
                               hints=[*hints, "export the module with PyTorch's own operators in their place"])


def _is_known(target: str) -> bool:
    """Whether an operator is PyTorch's, or one of a library that is installed"""
    space, _, name = target.removeprefix("torch.ops.").partition(".")

    def found() -> bool:
        return hasattr(getattr(torch.ops, space), name.partition(".")[0])

    if not target.startswith("torch.ops.") or found():
        return True
    if space in LIBRARIES:
        with quietly(), suppress(ImportError):
            importlib.import_module(LIBRARIES[space])
    return found()


def _check_target(target: Any, where: str) -> None:
    if not isinstance(target, str) or not TARGET.fullmatch(target):
        raise UnsupportedError(f"{where} calls {target!r}, which is no operator", hints=[TRUST])


def check_expression(text: str, where: str) -> None:
    """Sizes are evaluated as Python: they may only be arithmetic of symbols."""
    try:
        tree = ast.parse(text, mode="eval") if len(text) < 10_000 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not _arithmetic(tree.body):
        raise UnsupportedError(f"{where} has the size {text[:60]!r}, which is no arithmetic", hints=[TRUST])


def _arithmetic(e: ast.expr) -> bool:
    if isinstance(e, ast.Constant):
        return isinstance(e.value, (bool, int, float)) or e.value is None
    if isinstance(e, ast.Name):
        return NAME.fullmatch(e.id) is not None and not e.id.startswith("_")
    if isinstance(e, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.BoolOp)):
        return all(_arithmetic(c) for c in ast.iter_child_nodes(e) if isinstance(c, ast.expr))
    if not isinstance(e, ast.Call) or not isinstance(e.func, ast.Name) or not FUNCTION.fullmatch(e.func.id):
        return False
    args, keywords = list(e.args), [k.value for k in e.keywords]
    if e.func.id in ("Symbol", "Float") and args and isinstance(args[0], ast.Constant) and isinstance(
            args[0].value, str):
        if not re.fullmatch(r"\w+|[\d.e+-]+", args[0].value, re.ASCII):
            return False
        args = args[1:]
    if e.func.id == "Float":
        keywords = [k for k in keywords if not (isinstance(k, ast.Constant) and isinstance(k.value, str)
                                                and k.value.isdigit())]
    return all(map(_arithmetic, (*args, *keywords)))
