"""Which models and which of the user's objects are in a link: the rules of linkers, for both alike.

An object named directly is in. An object that waits (a member of an archive) joins when something that is
in needs a symbol that it defines; a model's symbols are those of its header. The order of archives does
not matter, as with lld: of several that define a symbol, the first on the line is taken. Weak references
need nothing, weak definitions satisfy. Parts of a model join together, and so do models that `--connect`
names. Where nothing but models is linked, there is nobody who could need one: then all are in.

What is decided here is what lld will decide of the user's objects; they go to it as they were given,
without the models among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from monobloc.codegen.names import identifier
from monobloc.errors import Diagnostics, LinkError, naming
from monobloc.link import header
from monobloc.link.connect import is_named, whole_name
from monobloc.link.line import Line, Unit, read_line, without_models
from monobloc.link.objects import Module
from monobloc.link.symbols import Symbols, is_code, read_symbols, used_by
from monobloc.object.fat import Object
from monobloc.options import Emit, Options


class NotNeeded(LinkError):
    """There are models, and nobody needs any."""


@dataclass(frozen=True)
class Resolved:
    """What a link is made of."""

    modules: tuple[Module, ...]
    objects: tuple[Object, ...]  # the modules that came from objects
    user: tuple[Path | str, ...]  # the linker's words, without models
    libs: tuple[str, ...]
    own: tuple[str, ...] = ()  # objects of the user's that are named directly
    left: tuple[str, ...] = ()  # models that nobody needs


def resolve(
    words: Sequence[Path | str], given: Sequence[Module], emit: Emit, o: Options, folder: Path,
    libs: Sequence[str] = (), libdirs: Sequence[Path] = (), thorough: bool = False,
) -> Resolved:
    """`given` are models straight from their files; what is written to `folder` is needed until the link is done.

    `thorough` looks into the user's archives even where no model depends on them, to explain a failure.
    """
    line = read_line(words, libs, libdirs)
    search = _Search(given, emit, o, folder, thorough or line.may_wait)
    search.walk(line)
    objects = [x for u in search.joined for x in u.models]
    modules = [*given, *(m for u in search.joined for m in u.modules)]
    check_options(objects, o)
    _refuse_clashes(modules, search, o)
    left = [u.place for u in line.units if u.has_models and u not in search.joined and u.identity not in search.seen]
    user = _user_words(line, folder) if search.application else []
    own = [u.place for u in line.units if not u.has_models and not u.waits and is_code(u.data)]
    return Resolved(tuple(modules), tuple(objects), tuple(user), tuple(line.libs), tuple(own), tuple(left))


def candidates(words: Sequence[Path | str], libs: Sequence[str] = (), libdirs: Sequence[Path] = ()) -> list[Object]:
    """All models that may join, the first of a name: whose headers sources may include."""
    out: dict[object, Object] = {}
    units = read_line(words, libs, libdirs).units
    for unit in sorted((u for u in units if u.has_models), key=lambda u: u.waits):
        for x in unit.models:
            part = x.summary.get("part")
            out.setdefault((x.summary.get("prefix"), part["index"] if isinstance(part, dict) else None), x)
    return list(out.values())


# -- who needs whom -------------------------------------------------------------------------------------
@dataclass
class _Search:
    """Symbols and units, as they become known from the first word to the last."""

    given: Sequence[Module]
    emit: Emit
    o: Options
    folder: Path
    all_archives: bool  # where no model waits, the user's archives are the linker's business alone
    joined: dict[Unit, Symbols] = field(default_factory=dict)
    seen: set[object] = field(default_factory=set)  # identities of those
    defined: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    waiting: dict[str, Unit] = field(default_factory=dict)  # by the symbols they define
    symbols: dict[Unit, Symbols] = field(default_factory=dict)
    application: bool = False

    def walk(self, line: Line) -> None:
        self.defined = {s for m in self.given for s in header.symbols(m)}
        roots = set(_roots(self.o, line.words, self.emit))
        if self.o.used_by:
            roots |= set(used_by(self.o.used_by, self.folder, self.o))
            self.application = True
        self._need(roots)
        for unit in line.units:
            if unit.waits and not unit.has_models and not self.all_archives:
                continue
            if not unit.waits or self._wanted(unit):
                self._join(unit)
            else:
                for s in sorted(self._symbols(unit).defined - self.defined):
                    self.waiting.setdefault(s, unit)
        self._connected(line)
        self._whole_models(line)
        if not self.application:
            for unit in line.units:
                if unit.has_models:
                    self._join(unit)

    def _symbols(self, unit: Unit) -> Symbols:
        if unit not in self.symbols:
            with naming(unit.place):
                found = read_symbols(unit.data, self.folder, self.o) if not unit.has_models else _of_models(unit)
            self.symbols[unit] = self._wrapped(found)
        return self.symbols[unit]

    def _wrapped(self, s: Symbols) -> Symbols:
        """`--wrap=f`: who needs `f` gets `__wrap_f`, and `__real_f` is `f`."""
        wrapped = {n for flag in ("--wrap", "-wrap") for n in _values(self.o.link_args, flag)}
        if not wrapped & {n.removeprefix("__real_") for n in s.needed}:
            return s
        needed = {f"__wrap_{n}" if n in wrapped else n.removeprefix("__real_") if n[7:] in wrapped else n
                  for n in s.needed}
        return Symbols(s.defined, s.strong, frozenset(needed))

    def _wanted(self, unit: Unit) -> bool:
        return bool(self._symbols(unit).defined & self.needed - self.defined)

    def _join(self, unit: Unit) -> None:
        """With all that it needs, as far as that is known yet."""
        stack = [unit]
        while stack:
            u = stack.pop()
            if u.identity in self.seen:
                continue
            self.seen.add(u.identity)
            self.joined[u] = s = self._symbols(u)
            text = not u.waits and not is_code(u.data)  # a script of the linker's, or what it will refuse
            self.application |= not u.has_models and bool(s.defined or s.needed or text)
            self.defined |= s.defined
            stack += self._need(s.needed)[::-1]

    def _need(self, names: Iterable[str]) -> list[Unit]:
        new = sorted(set(names) - self.defined - self.needed)
        self.needed |= set(new)
        return list(dict.fromkeys(self.waiting[n] for n in new if n in self.waiting))

    def _connected(self, line: Line) -> None:
        """Models that `--connect` names are needed by the program that it makes."""
        titles = {m.title for m in self.given} | {t for u in self.joined if u.has_models for t in _titles(u)}
        for unit in line.units:
            own = set(_titles(unit)) if unit.has_models else set()
            if any(is_named(t, self.o.connect) for t in own - titles):
                self._join(unit)
                titles |= own

    def _whole_models(self, line: Line) -> None:
        """One part of a model needs all others, the first of each."""
        parts = {p for u in self.joined if u.has_models for p in _parts(u)}
        prefixes = {prefix for prefix, _ in parts}
        for unit in line.units:
            own = set(_parts(unit)) if unit.has_models else set()
            if any(prefix in prefixes for prefix, _ in own - parts):
                self._join(unit)
                parts |= own


def _titles(unit: Unit) -> list[str]:
    return [str(x.summary.get("title")) for x in unit.models]


def _parts(unit: Unit) -> list[tuple[str, int]]:
    records = [(x.summary.get("prefix"), x.summary.get("part")) for x in unit.models]
    return [(str(prefix), int(part["index"])) for prefix, part in records if isinstance(part, dict)]


def _of_models(unit: Unit) -> Symbols:
    """A model defines its header's symbols, whatever its own code is, and needs nothing but other parts."""
    names = frozenset(s for m in unit.modules for s in header.symbols(m))
    return Symbols(names, names)


def _roots(o: Options, words: Sequence[Path | str], emit: Emit) -> Iterator[str]:
    """Symbols that the line itself needs."""
    options = [*o.link_args, *(w for w in words if isinstance(w, str))]
    for flag in ("-u", "--undefined", "--require-defined", "-e", "--entry"):
        yield from _values(options, flag)
    if emit == "exe":
        yield from ("main", "_start")


def _values(options: Sequence[str], flag: str) -> Iterator[str]:
    """`--flag value`, `--flag=value`, and `-uvalue` of one-letter flags."""
    for k, word in enumerate(options):
        if word == flag and k + 1 < len(options):
            yield options[k + 1]
        elif word.startswith(f"{flag}=") or (word.startswith(flag) and len(flag) == 2 and len(word) > 2):
            yield word[len(flag):].removeprefix("=")


def _user_words(line: Line, folder: Path) -> list[Path | str]:
    """Words for the linker, in order, without models; none if all that is left are options."""
    out: list[Path | str] = []
    for k, word in enumerate(line.words):
        units = line.of(k) if isinstance(word, Path) else []
        if not any(u.has_models for u in units):
            out.append(word)
        elif len(units) > 1 or units[0].place != str(word):
            rest = without_models(Path(word), units, folder)
            out += [rest] if rest is not None else []
    out += _closing([w for w in out if isinstance(w, str)])
    return out if any(isinstance(w, Path) for w in out) else []


_CLOSED_BY = {"--whole-archive": "--no-whole-archive", "--start-lib": "--end-lib", "-Bstatic": "-Bdynamic"}


def _closing(words: Sequence[str]) -> Iterator[str]:
    """What ends the states that words leave open: they are not for the start files and the C library behind them."""
    for opens, closes in _CLOSED_BY.items():
        if [w for w in words if w in (opens, closes)][-1:] == [opens]:
            yield closes


# -- what must not be -----------------------------------------------------------------------------------
def check_options(objects: Sequence[Object], o: Options) -> None:
    """A graph can move to another machine; the numeric contract that it was compiled for stays."""
    other = {x.name: str(x.summary.get("numerics", "default")) for x in objects}
    if any(n != o.numerics for n in other.values()):
        notes = [f"{name}: `--numerics {n}`" for name, n in other.items()]
        same = len(set(other.values())) == 1
        hint = f"pass `--numerics {next(iter(other.values()))}`" if same else \
            "compile the models again, all with one `--numerics`"
        raise LinkError(f"models were compiled for other numerics than this link's `--numerics {o.numerics}`",
                        notes=notes, hints=[hint])


def _refuse_clashes(modules: Sequence[Module], search: _Search, o: Options) -> None:
    """A function of the user's own under the name of one of a model's."""
    owner: dict[str, str] = {}
    for m in modules:
        if not is_named(m.title, o.connect):
            owner |= dict.fromkeys(header.symbols(m), f"the model `{m.title}` of {m.origin or m.title}")
    if o.connect:
        name = whole_name(o.name)
        owner |= {f"{identifier(name)}_{s}": f"the connected models, `{name}`" for s in header.CORE}
    problems = Diagnostics()
    for unit, symbols in search.joined.items():
        if not unit.has_models:
            for s in sorted(symbols.strong & owner.keys()):
                problems.report(LinkError(
                    f"`{s}` is defined twice: by {owner[s]}, and by {unit.place}",
                    hints=["give the function another name, or the model another prefix with `--name`"]))
    problems.checkpoint()
