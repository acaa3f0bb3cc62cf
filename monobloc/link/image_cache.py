"""Finished images by everything that decides their bytes.

An image with the user's own code, libraries or dumps is linked each time: what those files hold is not in
the key. What was compiled for it still comes from the cache, partition by partition.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict

from monobloc.cache import key, tree_digest
from monobloc.link import trace
from monobloc.link.objects import CSRC, Module, module_key
from monobloc.link.request import Request
from monobloc.link.trace import Trace
from monobloc.object import toolchain
from monobloc.object.fat import Object
from monobloc.options import Emit, Options


def request_key(modules: Sequence[Module], r: Request) -> str:
    """The image's name in the cache; "" where it has none."""
    o = r.o
    if r.cache is None or r.user or r.libs or o.dump or o.link_args or o.kernels:
        return ""
    return image_key(modules, r.emit, o, r.libs, () if o.graph_lto else r.objects)


def image_key(
    modules: Sequence[Module], emit: Emit, o: Options, libs: Sequence[str], objects: Sequence[Object] = ()
) -> str:
    """Everything that decides an image's bytes; `objects` where their own code is linked."""
    return key(
        code=[[bytes(x.code), bytes(x.bitcode)] for x in objects],
        what="image", modules=[module_key(m) for m in modules], emit=emit, tool=toolchain.tool_version(),
        target=[o.target.name, o.target.cpu, *o.target.cflags], lto=o.lto, graph_lto=o.graph_lto,
        optimize=o.optimize, numerics=o.numerics, threads=o.threads, arenas=o.arenas,
        debug=o.debug, profile=o.profile, remarks=o.remarks, libs=list(libs),
        csrc=tree_digest(CSRC), compiler=compiler_digest(), budgets=[o.ram, o.flash],
        regions=[asdict(r) for r in o.memories], large_over=o.large_over,
    )


@functools.cache
def compiler_digest() -> str:
    """Our own sources decide the output too."""
    root = CSRC.parent
    return key(files=[(p.relative_to(root).as_posix(), p.read_bytes()) for p in sorted(root.rglob("*.py"))])


def find(k: str, r: Request) -> Trace | None:
    """Put the image into its place, and the linker's map if one is wanted: all or nothing."""
    if r.cache is None or not k:
        return None
    traced = r.cache.get(_trace_key(k))
    if traced is None or (r.o.map is not None and not r.cache.get_file(_map_key(k), r.o.map)):
        return None
    return trace.unpacked(traced) if r.cache.get_file(k, r.out) else None


def keep(k: str, r: Request, traced: Trace) -> None:
    if r.cache is None or not k:
        return
    r.cache.put_file(k, r.out)
    r.cache.put(_trace_key(k), traced.packed())
    if r.o.map is not None and r.o.map.is_file():
        r.cache.put_file(_map_key(k), r.o.map)
    r.cache.collect()  # a build that added something keeps the cache within its size


def _trace_key(k: str) -> str:
    return key(what="trace", image=k)


def _map_key(k: str) -> str:
    return key(what="map", image=k)
