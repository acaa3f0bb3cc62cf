"""`torch.compile(module, backend="monobloc")`: what Dynamo captures runs as an image.

Dynamo hands over a graph whose parameters are inputs. Those that are the module's own become constants of the image;
the rest are its inputs. An image is made at the first call with new shapes, and again when a parameter was changed.
What cannot be compiled runs eagerly, and says why once. Inference only: where gradients are asked for, PyTorch runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from monobloc.driver import compile as compile_model
from monobloc.errors import ModelError, MonoblocError
from monobloc.frontend.torch.program import export
from monobloc.frontend.torch.tensors import array_of, tensor_of
from monobloc.loader import CompiledModel

Key = tuple[Any, ...]


def monobloc(graph: Any, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, **_: Any) -> Any:
    """The backend; `options` are those of `monobloc.compile` (threads, lto, numerics, ...)"""
    return _Compiled(graph, example_inputs, dict(options or {}))


class _Compiled:
    """A captured graph, and an image for every set of shapes it has been called with"""

    def __init__(self, graph: Any, examples: Sequence[Any], options: dict[str, Any]) -> None:
        self.graph, self.options = graph, options
        self.own = [_is_own(n, x) for n, x in zip(_placeholders(graph), examples, strict=True)]
        self.images: dict[Key, tuple[Key, Callable[..., Any]]] = {}
        self.told: set[str] = set()

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            self._tell("gradients are asked for, and an image computes none: call it under `torch.no_grad()` or "
                       "`torch.inference_mode()`")
            return self.graph(*args)
        key = tuple((tuple(a.shape), a.dtype) if isinstance(a, torch.Tensor) else a for a in args)
        stamp = tuple(_stamp(a) for a, own in zip(args, self.own, strict=True) if own)
        made, run = self.images.get(key, (None, self.graph))
        if made != stamp:
            run = self._image(args)
            self.images[key] = stamp, run
        return run(*args)

    def _image(self, args: Sequence[Any]) -> Callable[..., Any]:
        fixed = {k: a for k, a in enumerate(args) if self.own[k] or not isinstance(a, torch.Tensor)}
        given = [k for k in range(len(args)) if k not in fixed]
        try:
            program = export(_Bound(self.graph, fixed, len(args)), [args[k] for k in given])
            signature = program.core.graph_signature
            if signature.buffers_to_mutate or signature.user_inputs_to_mutate:
                raise ModelError("it changes tensors of the module or its inputs in place")
            outputs = program.outputs()
            image = compile_model(program, **self.options)
        except MonoblocError as e:
            self._tell(str(e))
            return self.graph  # type: ignore[no-any-return]
        return lambda *all_args: _called(image, outputs, [all_args[k] for k in given])

    def _tell(self, why: str) -> None:
        if why not in self.told:
            self.told.add(why)
            warnings.warn(f"monobloc: runs eagerly: {why}", stacklevel=3)


class _Bound(torch.nn.Module):  # type: ignore[misc]
    """A graph with some of its inputs fixed: tensors as buffers, numbers as they are"""

    def __init__(self, graph: Any, fixed: dict[int, Any], count: int) -> None:
        super().__init__()
        self.graph, self.count, self.numbers = graph, count, {}
        for k, a in fixed.items():
            if isinstance(a, torch.Tensor):
                self.register_buffer(f"fixed_{k}", a.detach())
            else:
                self.numbers[k] = a
        self.names = {k for k, a in fixed.items() if isinstance(a, torch.Tensor)}

    def forward(self, *given: Any) -> Any:
        rest = iter(given)
        args = [getattr(self, f"fixed_{k}") if k in self.names else self.numbers[k] if k in self.numbers
                else next(rest) for k in range(self.count)]
        return self.graph(*args)


def _placeholders(graph: Any) -> list[Any]:
    return [n for n in graph.graph.nodes if n.op == "placeholder"]


def _is_own(n: Any, example: Any) -> bool:
    """Whether an input is a parameter or buffer of the module that was captured"""
    static = getattr(example, "_dynamo_static_input_type", None)
    return isinstance(example, torch.nn.Parameter) or static is not None or "_dynamo_static_input_type" in n.meta


def _stamp(a: Any) -> Key:
    """Another one when a parameter was changed or replaced"""
    return (a.data_ptr(), 0 if a.is_inference() else a._version) if isinstance(a, torch.Tensor) else (a,)


def _called(image: CompiledModel, outputs: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """What the graph returns: the image's outputs, and None and numbers where it returns those"""
    feeds = {s.name: array_of(t, s.name) for s, t in zip(image.inputs, tensors, strict=True)}
    made = iter(image.run(feeds).values())
    found = []
    for leaf in outputs:
        y = next(made) if leaf is not None else None
        number = not isinstance(getattr(leaf, "meta", {}).get("val"), torch.Tensor)
        found.append(None if y is None else np.asarray(y).item() if number else tensor_of(y))
    return tuple(found)
