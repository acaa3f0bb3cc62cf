"""`opt`: any passes on any dump."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from monobloc import driver
from monobloc.cache import write_atomic
from monobloc.cli import Usage, console
from monobloc.cli.flags import Flags
from monobloc.cli.settings import options
from monobloc.errors import ModelError
from monobloc.ir.graph import Const, Graph
from monobloc.ir.text import ConstSource, parse_graph, print_graph
from monobloc.ir.types import TensorType
from monobloc.ir.verify import verify
from monobloc.link.objects import context
from monobloc.passes import Pass, pipeline, run_passes
from monobloc.report import facts

_ONE = re.compile(r"\s*([a-z_]+)\s*(?:\{([^}]*)\})?\s*(?:,|$)")


def opt(file: Path, passes: str | None, output: Path | None, weights: Path | None, flags: Flags) -> int:
    o = options(flags)
    chosen = named_passes(passes) if passes is not None else None
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"`{file}` is no dump") from None
    g = read_dump(text, file, constants_of(weights, file))
    verify(g)
    ctx = context(o, "image")
    run_passes(g, ctx, chosen)
    out = print_graph(g) + "\n"
    if output is None:
        print(out, end="")
    else:
        write_atomic(output, [out.encode()])
        changed = [name for name, _, did in ctx.times if did]
        console.say(f"{output}: {len(g.nodes)} nodes; changed by {', '.join(changed) or 'nothing'}")
    return 0


# -- passes -------------------------------------------------------------------------------------------
def named_passes(text: str) -> list[Pass]:
    """`fuse,layout{x=1}`: names of passes, options in braces."""
    known = {p.name: type(p) for p in pipeline()}
    out, at = [], 0
    while at < len(text):
        m = _ONE.match(text, at)
        if m is None:
            raise Usage(f"`-p {text}`: cannot read `{text[at:]}`")
        if m[1] not in known:
            raise Usage(f"`-p {text}`: no pass is called `{m[1]}`\n  hint: passes: {', '.join(known)}")
        out.append(_made(known[m[1]], m[1], m[2] or ""))
        at = m.end()
    return out


def _made(kind: Callable[[], Pass], name: str, text: str) -> Pass:
    p = kind()
    for part in filter(None, (x.strip() for x in text.split(","))):
        key, eq, value = part.partition("=")
        if not eq or not hasattr(p, key.strip()) or key.strip() in ("name", "run"):
            raise Usage(f"pass `{name}` has no option `{key.strip()}`")
        setattr(p, key.strip(), _value(value.strip()))
    return p


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# -- dumps --------------------------------------------------------------------------------------------
def read_dump(text: str, file: Path, weights: ConstSource) -> Graph:
    try:
        return parse_graph(text, weights)
    except ModelError as e:
        raise ModelError(f"{file}: {e.message}", notes=e.notes, hints=e.hints) from None


def constants_of(source: Path | None, file: Path) -> ConstSource:
    """Large constants, which a dump only names; those not at hand fail when a pass wants their data."""
    known = _known(source, file)

    def find(key: str, t: TensorType) -> Const:
        def load() -> np.ndarray:
            stored = _stored(folder / f"{key}.bin", t)
            if stored is None:
                raise ModelError(f"{file}: the data of constant @{key} are not at hand",
                                 hints=["give the model, an object or a folder with `--weights`"])
            return stored

        return known.get(key) or Const(key=key, load=load)

    folder = source if source is not None and source.is_dir() else file.parent / "weights"
    return find


def _stored(path: Path, t: TensorType) -> np.ndarray | None:
    if not path.is_file():
        return None
    data = np.fromfile(path, t.dtype.numpy)
    if data.size != t.size:
        raise ModelError(f"`{path}` has {data.size} elements for {t}")
    return data.reshape(t.shape)


def _known(source: Path | None, file: Path) -> dict[str, Const]:
    """Constants of a model, as imported, or of an object."""
    if source is None or source.is_dir():
        return {}
    if not source.is_file():
        raise ModelError(f"cannot read `{source}`: no such file")
    o = options({})
    graphs = ([driver.import_model(source, o).graph] if driver.is_model(source)
              else [m.graph for m in facts.modules_of(source)])
    found = [v.const for g in graphs for part in g.tree() for v in part.constants() if v.const is not None]
    return {c.key: c for c in found}
