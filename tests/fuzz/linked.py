"""One random model, linked in every way that must not change its answers.

What the same code computes elsewhere (parts, regions, shared arenas, threads, modes of LTO) must be the
same to the bit; what is compiled from another graph (connected halves, dead outputs, bound inputs, another
start) must be what onnxruntime says, as the whole model is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from builder import Builder, reads
from onnx import helper, numpy_helper
from tolerance import differs

from monobloc.driver import import_model
from monobloc.link.image import link_modules
from monobloc.link.objects import Module
from monobloc.link.request import Request
from monobloc.link.split import split_at, split_into
from monobloc.loader import CompiledModel
from monobloc.options import Options
from monobloc.targets import Region

Answers = Mapping[str, np.ndarray]
FAST = Region("fast", "ram", 1024)
DMA = Region("dma", "ram", hold=("io",))
COLD = Region("cold", "flash", 512, hold=("cold",))


def module(model: onnx.ModelProto, name: str, o: Options) -> Module:
    return Module(import_model(model.SerializeToString(), o).graph, name, name, name)


def whole(b: Builder, o: Options, name: str = "m") -> Module:
    return module(b.model(), name, o)


class Own:
    """A model in the image's own memory, as an application calls it."""

    def __init__(self, lib: CompiledModel) -> None:
        self.lib, self.info = lib, lib._info
        self.ram = self.info.ram()

    def _ports(self, infos: object, n: int, specs: Sequence[object]) -> Iterator[tuple[str, np.ndarray]]:
        for k, spec in zip(range(n), specs, strict=True):
            i = infos[k]  # type: ignore[index]
            raw = (ctypes.c_uint8 * int(i.bytes)).from_address(i.at(self.ram)) if i.bytes else b""
            yield spec.name, np.frombuffer(raw, spec.dtype).reshape(spec.shape)  # type: ignore[attr-defined]

    def write(self, feeds: Answers) -> None:
        for name, view in self._ports(self.info.inputs, self.info.n_inputs, self.lib.inputs):
            if view.size:
                view.flags.writeable = True
                view[...] = feeds[name]

    def run(self) -> None:
        assert self.info.run() == 0

    def read(self) -> dict[str, np.ndarray]:
        return {n: v.copy() for n, v in self._ports(self.info.outputs, self.info.n_outputs, self.lib.outputs)}


def images(b: Builder, modules: Sequence[Module], folder: Path, tag: str, o: Options) -> Path:
    out = folder / f"{b.seed}-{tag}.so"
    link_modules(modules, Request(out, "shared", o))
    return out


def answers(path: Path, feeds: Answers) -> dict[str, np.ndarray]:
    model = CompiledModel(path)
    given = {i.name: feeds[i.name] for i in model.inputs}
    model.run(given)
    return model.run(given)  # the second run meets what the first has left


def same_bits(a: Answers, b: Answers, tag: str) -> list[str]:
    if list(a) != list(b):
        return [f"{tag}: outputs {list(a)} instead of {list(b)}"]
    return [f"{tag}: bits of `{n}` differ" for n in a if a[n].tobytes() != b[n].tobytes()]


def right(got: Answers, b: Builder, names: Sequence[str], tag: str) -> list[str]:
    lost = [f"{tag}: no output `{n}`" for n in names if n not in got]
    return lost + [f"{tag}: `{n}`: {d}" for n in names if n in got and (d := differs(got[n], b.values[n]))]


# -- the same code, elsewhere ---------------------------------------------------------------------------
def elsewhere(b: Builder, folder: Path, o: Options) -> list[str]:
    plain = images(b, [whole(b, o)], folder, "plain", o)
    want = answers(plain, b.feeds())
    bad = right(want, b, b.outputs, "plain")
    made = [n for node in whole(b, o).graph.nodes for n in (v.name for v in node.outputs)]
    cuts = [split_into(whole(b, o), 3)]
    if made:
        chosen = [made[int(b.rng.integers(len(made)))] for _ in range(2)]
        cuts.append(split_at(whole(b, o), list(dict.fromkeys(sorted(chosen, key=made.index)))))
    for k, parts in enumerate(cuts):
        order = b.rng.permutation(len(parts))
        path = images(b, [parts[i] for i in order], folder, f"parts{k}", o)
        if path.read_bytes() != plain.read_bytes():
            bad.append(f"parts {k}: the image differs")
    ways = {"regions": {"regions": (DMA, FAST, COLD)}, "thin": {"lto": "thin"},
            "full": {"lto": "full"}, "threads": {"threads": 2}}
    for tag, more in ways.items():
        path = images(b, [whole(b, o)], folder, tag, replace(o, **more))  # type: ignore[arg-type]
        bad += same_bits(answers(path, b.feeds()), want, tag)
        own = Own(CompiledModel(path))
        own.write(b.feeds())
        own.run()
        bad += same_bits(own.read(), want, f"{tag}, own memory")
    return bad


def interleaved(builders: Sequence[Builder], folder: Path, o: Options) -> list[str]:
    """Models of one image in turns: inputs and outputs of each stay, whatever the others do in between."""
    bad: list[str] = []
    want = {f"m{k}": answers(images(b, [whole(b, o, f"m{k}")], folder, f"alone{k}", o), b.feeds())
            for k, b in enumerate(builders)}
    for tag, more in {"shared": {}, "own": {"arenas": "own"},
                      "regions": {"regions": (DMA, FAST), "threads": 2}}.items():
        mine = replace(o, **more)  # type: ignore[arg-type]
        path = images(builders[0], [whole(b, o, f"m{k}") for k, b in enumerate(builders)], folder, f"turns-{tag}", mine)
        models = [Own(CompiledModel(path, k)) for k in range(len(builders))]
        for m, b in zip(models, builders, strict=True):
            m.write(b.feeds())
        for k in builders[0].rng.integers(0, len(models), 6):
            models[int(k)].run()
        for m in models:
            m.run()
        for m in models[::-1]:
            bad += same_bits(m.read(), want[m.lib.name], f"{tag} {m.lib.name}")
    return bad


# -- another graph, the same answers ---------------------------------------------------------------------
def halves(b: Builder, at: int) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The nodes before and after a place, as two models that meet by the names of tensors."""
    first, second = b.nodes[:at], b.nodes[at:]
    made = {o for n in first for o in n.output}
    border = [x for x in dict.fromkeys(i for n in second for i in reads(n)) if x in made]
    early = [o for o in b.outputs if o in made and o not in border]
    late = [o for o in b.outputs if any(o in n.output for n in second)]
    return (_half(b, first, [], [*border, *early]), _half(b, second, border, late))


def _half(b: Builder, nodes: Sequence[onnx.NodeProto], border: Sequence[str], outs: Sequence[str]) -> onnx.ModelProto:
    used = dict.fromkeys(i for n in nodes for i in reads(n))
    ins = [b.info(i) for i in [*border, *(i for i in b.inputs if i in used)]]
    graph = helper.make_graph(list(nodes), "half", ins, [b.info(o) for o in outs],
                              [numpy_helper.from_array(b.values[c], c) for c in b.constants if c in used])
    return b.proto(graph)


def connected(b: Builder, folder: Path, o: Options) -> list[str]:
    at = int(b.rng.integers(1, len(b.nodes)))
    first, second = halves(b, at)
    ins = {i.name for i in second.graph.input}
    meets = [x.name for x in first.graph.output if x.name in ins]
    shared = [i for i in b.inputs if i in ins and i in {x.name for x in first.graph.input}]
    if not meets or not second.graph.output:
        return []
    pairs = (("b", "a"), *((f"b.{i}", f"a.{i}") for i in shared))
    for lto in ("none", "thin"):
        mine = replace(o, connect=pairs, lto=lto)  # type: ignore[arg-type]
        path = images(b, [module(second, "b", o), module(first, "a", o)], folder, f"connected-{lto}", mine)
        outs = [o for o in b.outputs if o not in meets and o not in b.inputs and o not in b.constants]
        if bad := right(answers(path, b.feeds()), b, outs, f"connected at {at}, {lto}"):
            return bad
    return []


def fixed(b: Builder, folder: Path, o: Options) -> list[str]:
    """Dead outputs, a bound input, a later start; each alone and all at once."""
    keep = [o for o in b.outputs if b.rng.random() < 0.5] or b.outputs[:1]
    bind = {i: b.values[i] for i in b.inputs if b.rng.random() < 0.5}
    made = [n for node in b.nodes for n in node.output if b.values[n].size and n not in b.outputs]
    start = (made[int(b.rng.integers(len(made)))],) if made else ()
    known = {v.origin or v.name for n in whole(b, o).graph.nodes for v in n.outputs}
    ways: dict[str, dict[str, object]] = {"keep": {"keep_outputs": tuple(keep)}, "bind": {"bind": bind}}
    if start and start[0] in known:
        ways |= {"from": {"start_from": start}, "all": {"keep_outputs": tuple(keep), "bind": bind, "start_from": start}}
    bad: list[str] = []
    for tag, more in ways.items():
        kept = keep if "keep_outputs" in more else b.outputs
        path = images(b, [whole(b, o)], folder, tag, replace(o, **more))  # type: ignore[arg-type]
        bad += right(answers(path, {**b.feeds(), **{s: b.values[s] for s in start}}), b, kept, f"{tag} {more.keys()}")
    return bad


WAYS: dict[str, Callable[[Builder, Path, Options], list[str]]] = {
    "elsewhere": elsewhere, "connected": connected, "fixed": fixed,
}
