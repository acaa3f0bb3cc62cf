"""PyTorch beside our images: the oracle and the peer of its own programs, run eagerly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from monobloc.errors import UnsupportedError
from monobloc.frontend.formats import TORCH_INSTALL, need_torch

NAME, INSTALL = "PyTorch", TORCH_INSTALL


def installed() -> bool:
    return find_spec("torch") is not None


class Session:
    """A program under our names of inputs and outputs"""

    def __init__(self, model: Any) -> None:
        need_torch()
        from monobloc.frontend.torch.program import read_program

        self.program = read_program(model)
        try:  # guards are Python of the file's: sizes are compared by what runs
            self.module = self.program.exported.module(check_guards=False)
        except Exception as e:
            raise refused(e) from None
        for m in self.module.modules():  # what a run changes is the session's own
            for name, buffer in m._buffers.items():
                m._buffers[name] = None if buffer is None else buffer.clone()

    def arguments(self, feeds: Mapping[str, np.ndarray]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """(positional, by name, the tensors among them by our names)"""
        import torch

        from monobloc.frontend.torch.tensors import tensor_of

        tensors = {k: tensor_of(v) for k, v in feeds.items()}
        leaves = [tensors.get(n.name, n.meta.get("val")) for n in self.program.user_inputs()]
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self.program.exported.call_spec.in_spec)
        return list(args), dict(kwargs), tensors

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import torch

        from monobloc.frontend.torch.tensors import array_of

        args, kwargs, tensors = self.arguments(feeds)
        try:
            with torch.no_grad():
                found = torch.utils._pytree.tree_leaves(self.module(*args, **kwargs))
        except Exception as e:
            raise refused(e) from None
        named = dict(zip(self.program.output_names(), found, strict=True))
        named |= {f"{s.target}/next": tensors[s.target] for s in self.program.core.graph_signature.output_specs
                  if s.kind.name == "USER_INPUT_MUTATION"}
        return {k: array_of(v, k) if isinstance(v, torch.Tensor) else np.asarray(v)
                for k, v in named.items() if v is not None}

    def values(self, feeds: Mapping[str, np.ndarray], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Inner values, by the names that the program in core ATen calls them by"""
        import torch

        from monobloc.frontend.torch.tensors import array_of

        wanted, found, core = set(names), dict[str, np.ndarray](), self.program.core

        class Kept(torch.fx.Interpreter):  # type: ignore[misc]
            def run_node(self, n: Any) -> Any:
                y = super().run_node(n)
                if n.name in wanted:
                    found[n.name] = array_of(y, n.name)
                return y

        args, kwargs, _ = self.arguments(feeds)
        try:
            with torch.no_grad():
                Kept(core.graph_module).run(*core._graph_module_flat_inputs(tuple(args), kwargs))
        except Exception as e:
            raise refused(e) from None
        return found


inner_session = Session


def inner_values(model: Path) -> list[tuple[str, str, str]]:
    """(name, layer, operator) of every tensor that the program's calls make, in their order"""
    import torch

    from monobloc.frontend.torch.importer import op_name
    from monobloc.frontend.torch.program import read_program
    from monobloc.frontend.torch.where import label

    return [(n.name, label(n), op_name(n.target)) for n in read_program(model).core.graph.nodes
            if n.op == "call_function" and isinstance(n.meta.get("val"), torch.Tensor)
            and not n.meta["val"].is_complex()]


def timed(model: Path, feeds: Mapping[str, np.ndarray], threads: int) -> Callable[[], Any]:
    """What to call again and again"""
    session = Session(model)
    import torch

    torch.set_num_threads(threads)
    args, kwargs, _ = session.arguments(feeds)

    def run() -> Any:
        with torch.inference_mode():
            return session.module(*args, **kwargs)

    try:
        run()
    except Exception as e:
        raise refused(e) from None
    return run


def refused(e: Exception) -> UnsupportedError:
    first = (str(e).strip().splitlines() or ["no reason given"])[0][:300]
    return UnsupportedError(f"PyTorch refuses the program: {first}",
                            hints=["`--against reference` compares with our own reference"])
