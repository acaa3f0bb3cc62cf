"""Structures of a program's inputs and outputs whose classes are not here.

Libraries register classes of their own as structures (`transformers` its outputs and caches), and a file only says
their names. To import what a file names would be to run it. All that a program needs of such a class is how many parts
it has and what they are called, which the file says too: so each name gets a class that stands in for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import torch

tree = torch.utils._pytree


class StandIn:
    """Parts of a structure, and what the file says of them"""

    def __init__(self, parts: Iterable[Any], context: Any) -> None:
        self.parts, self.context = list(parts), context

    def names(self) -> list[str] | None:
        """Keys are the context itself, or the first of its lists, as dataclasses have it"""
        given = self.context if isinstance(self.context, list) else []
        for found in (given, given[0] if given else []):
            if isinstance(found, list) and [type(k) for k in found] == [str] * len(self.parts):
                return list(found)
        return None


def register(program: Any) -> None:
    """Classes for all names in a program's JSON that PyTorch does not know"""
    for name in sorted(set(_names(program))):
        if name not in tree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
            kind = type(name.rpartition(".")[2], (StandIn,), {"__module__": name.rpartition(".")[0]})
            tree.register_pytree_node(
                kind, lambda x: (x.parts, x.context), kind, serialized_type_name=name, to_dumpable_context=json.dumps,
                from_dumpable_context=json.loads, flatten_with_keys_fn=_with_keys)


def _with_keys(x: StandIn) -> tuple[list[tuple[Any, Any]], Any]:
    names = x.names()
    keys = map(tree.SequenceKey, range(len(x.parts))) if names is None else map(tree.MappingKey, names)
    return list(zip(keys, x.parts, strict=True)), x.context


def _names(found: Any) -> Iterator[str]:
    """Names of structures in what is under `in_spec` and `out_spec`, which are JSON in strings"""
    stack = [found]
    while stack:
        x = stack.pop()
        if isinstance(x, list):
            stack += x
        elif isinstance(x, dict):
            stack += x.values()
            if isinstance(x.get("type"), str) and "children_spec" in x and "context" in x:
                yield x["type"]
            for spec in (x.get("in_spec"), x.get("out_spec")):
                if isinstance(spec, str):
                    stack.append(_parsed(spec))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None  # PyTorch says so itself
