"""`dataclass`, made in a tenth of the time.

The problem: the standard one writes and compiles the text of up to seven methods for each class, half a millisecond;
two hundred classes are a seventh of a build that has nothing to do.
The idea: equality, hashing and `repr` need no text, closures over the names of the fields do the same; and
`__init__`, which does, is written when the class is first called: most classes never are.
What such a class can do is what the standard library says of it. Those with slots are left to that.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_MADE = object()  # stands for a default that is made for each instance


def _record(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True, slots: bool = False) -> Any:
    if slots:
        return dataclasses.dataclass(frozen=frozen, eq=eq, slots=True)
    return _made(cls, False, True) if cls is not None else lambda c: _made(c, frozen, eq)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _record


def _made(cls: type, frozen: bool, eq: bool) -> type:
    own = cls.__dict__
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # or the standard library writes one, slowly
    methods: dict[str, Any] = {"__init__": _first_init(cls, frozen), "__repr__": _repr}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    if eq:
        values = _values(tuple(f.name for f in dataclasses.fields(cls) if f.compare))
        if "__eq__" in own and own["__hash__"] is None:
            del cls.__hash__  # Python's doing, for a class with an `__eq__` of its own
        methods |= {"__eq__": _equality(values), "__hash__": _hash(values) if frozen else None}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


# -- making instances -----------------------------------------------------------------------------------
def _first_init(cls: type, frozen: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init = _init(cls, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    """What the standard library would write."""
    names: dict[str, Any] = {"_made": _MADE, "_set": object.__setattr__}
    parameters, body = ["self"], []
    for f in dataclasses.fields(cls):
        value = f.name
        if f.default_factory is not dataclasses.MISSING:
            names[f"_new_{f.name}"] = f.default_factory
            value = f"_new_{f.name}() if {f.name} is _made else {f.name}"
        if not f.init:
            if f.default_factory is dataclasses.MISSING:
                continue
            value = f"_new_{f.name}()"
        else:
            parameters.append(_parameter(f, names))
        body.append(f" _set(self, {f.name!r}, {value})" if frozen else f" self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body or [" pass"]), names)  # noqa: S102
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _parameter(f: dataclasses.Field[Any], names: dict[str, Any]) -> str:
    if f.default_factory is not dataclasses.MISSING:
        return f"{f.name}=_made"
    if f.default is dataclasses.MISSING:
        return f.name
    names[f"_default_{f.name}"] = f.default
    return f"{f.name}=_default_{f.name}"


# -- what instances can do ------------------------------------------------------------------------------
def _values(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return (lambda x: (getattr(x, names[0]),)) if names else lambda _: ()


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse_to_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
