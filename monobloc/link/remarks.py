"""What LLVM did at the link and what it could not do: its optimization remarks, summed up.

Problem: a small program makes thousands of remarks, most of them about one loop seen several times.
Idea: only two questions are kept, which calls were inlined and which loops became vector loops, and
equal answers are counted. Functions go by their symbols; who reads this knows which layer they are.
Remarks are about the link: what clang did to one file before is not in them, but for loops of files that
the link takes as finished code (`finished`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from monobloc.cache import Cache, key, tree_digest
from monobloc.link.objects import INCLUDE
from monobloc.link.stack import plain
from monobloc.object import toolchain
from monobloc.object.toolchain import CompileJob

_PASSES = "inline|loop-vectorize"
_ENTRY = re.compile(r"^--- !(\w+)\n(.*?)^\.\.\.$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^(Pass|Name|Function): +(.*)$", re.MULTILINE)
_ARGUMENT = re.compile(r"^  - (\w+): +(.*)$", re.MULTILINE)
_BY_DESIGN = ("layer_", "mb_")  # functions of ours that stay functions
_NOT_VECTOR = "loop not vectorized: "
BY_HAND = "already written with vectors"
# LLVM's words where they say little; code of ours that is written with vectors is full of the first two
_REASONS = {
    "instruction return type cannot be vectorized": BY_HAND,
    "loop control flow is not understood by vectorizer": "several exits or branches",
    "Cannot vectorize uncountable loop": "number of rounds unknown before the loop runs",
    "could not determine number of loop iterations": "number of rounds unknown before the loop runs",
}


@dataclass(frozen=True)
class Remark:
    """`count` equal remarks: about a call of `callee` in `function`, or about loops of `function`"""

    kind: str  # "inlined", "not inlined", "vectorized", "not vectorized"
    function: str
    callee: str
    detail: str  # why not, or how wide
    count: int = 1


@dataclass
class _Entry:
    kind: str
    fields: dict[str, str] = field(default_factory=dict)
    arguments: list[tuple[str, str]] = field(default_factory=list)

    def argument(self, key: str) -> str:
        return next((v for k, v in self.arguments if k == key), "")

    @property
    def text(self) -> str:
        return "".join(v for _, v in self.arguments)


def flags(folder: Path) -> tuple[str, ...]:
    """lld's options; the values are words of their own."""
    return ("--opt-remarks-filename", str(folder / "remarks"), "--opt-remarks-passes", _PASSES,
            "--opt-remarks-format", "yaml")


def of_compiling(jobs: Sequence[CompileJob], folder: Path, cache: Cache | None) -> None:
    """What clang says of the loops of files that the link does not compile; kept, since it does so all over again."""
    words = ("-fsave-optimization-record=yaml", "-foptimization-record-passes=loop-vectorize")
    tools, headers = toolchain.find_tools(), tree_digest(INCLUDE)
    for n, job in enumerate(jobs):
        out = folder / f"remarks.{n}"
        k = key(what="remarks", tool=toolchain.tool_version(tools), flags=toolchain.compile_flags(job), name=job.name,
                text=job.text, headers=headers)
        if cache is None or not cache.get_file(k, out):
            toolchain.compile_here(
                replace(job, extra=(*job.extra, *words, f"-foptimization-record-file={out.absolute()}")), tools)
            out.touch()  # no loops, no file
            if cache is not None:
                cache.put_file(k, out)


def read(folders: Iterable[Path]) -> tuple[Remark, ...]:
    """All remarks of a link: Full LTO writes one file, ThinLTO one for each module."""
    counts: dict[Remark, int] = {}
    for path in [p for folder in folders for p in sorted(folder.glob("remarks*"))]:
        for entry in _entries(path.read_text(encoding="utf-8", errors="replace")):
            if (made := _remark(entry)) is not None:
                counts[made] = counts.get(made, 0) + 1
    found = (Remark(r.kind, r.function, r.callee, r.detail, n) for r, n in counts.items())
    return tuple(sorted(found, key=lambda r: (r.kind, r.function, r.callee, r.detail)))


def _entries(text: str) -> Iterator[_Entry]:
    for m in _ENTRY.finditer(text):
        entry = _Entry(m[1], dict(_FIELD.findall(m[2])))
        entry.arguments = [(k, _unquoted(v)) for k, v in _ARGUMENT.findall(m[2])]
        yield entry


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text


def _remark(x: _Entry) -> Remark | None:
    function = plain(x.fields.get("Function", ""))
    name = x.fields.get("Name", "")
    if x.fields.get("Pass") == "inline":
        callee = plain(x.argument("Callee"))
        if x.kind == "Passed":
            return Remark("inlined", function, callee, "")
        if x.kind != "Missed" or callee.startswith(_BY_DESIGN):
            return None
        return Remark("not inlined", function, callee, x.argument("Reason") or _why(x))
    if name == "Vectorized":
        return Remark("vectorized", function, "", f"{x.argument('VectorizationFactor')} at once")
    if x.kind == "Missed" or not x.text.startswith(_NOT_VECTOR):
        return None
    reason = x.text.removeprefix(_NOT_VECTOR)
    return Remark("not vectorized", function, "", _REASONS.get(reason, reason))


def _why(x: _Entry) -> str:
    reason = x.text.rpartition(" because ")[2].strip()
    if reason == "conflicting attributes":
        return "compiled for different CPUs"
    return re.sub(r"^it should never be inlined.*", "it must stay a function", reason)
