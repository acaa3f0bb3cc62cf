"""Closing relocatables: inner names no longer clash, and everything still points where it did."""

import subprocess
from pathlib import Path

import pytest

from monobloc import targets
from monobloc.errors import LinkError
from monobloc.object import elf, fat
from monobloc.object.localize import localize
from monobloc.object.toolchain import (
    CompileJob,
    LinkJob,
    compile_all,
    find_tools,
    link,
    relocatable,
)

SHARED = b"sixteen bytes...", fat.weight_hash(b"sixteen bytes...")


def closed(folder: Path, target: targets.Target, letter: str, number: int) -> Path:
    """A block of two files with an inner name `helper` that every block has."""
    outer = (
        f"int helper(int); int {letter}_state = {number};\n"
        f"extern const char mb_w_{SHARED[1]}[16];\n"
        f"int {letter}_run(int a) {{ return helper(a) + {letter}_state + mb_w_{SHARED[1]}[a]; }}\n"
    )
    inner = f"static int t[2] = {{ {number}, 0 }}; int *helper_table = t;\n"
    inner += "int helper(int a) { return helper_table[0] + a; }\n"
    parts = []
    for name, text in (("outer", outer), ("inner", inner)):
        job = CompileJob(text.encode(), folder / f"{letter}.{name}.o", target, name=f"{name}.c")
        parts += [c.out for c in compile_all([job])]
    weights = folder / "weights.o"
    made = fat.weights_object({SHARED[1]: fat.Weight(SHARED[0])}, target.elf_machine)
    weights.write_bytes(b"".join(map(bytes, made)))
    out = relocatable([*parts, weights], folder / f"{letter}.open.o", target)
    done = folder / f"{letter}.o"
    done.write_bytes(localize(out.read_bytes(), lambda name: name.startswith(letter + "_")))
    return done


START = {
    "x86_64": "and $-16, %rsp\\n call app\\n mov %eax, %edi\\n mov $60, %eax\\n syscall",
    "aarch64": "bl app\\n mov x8, #93\\n svc #0",
}


@pytest.mark.parametrize("name", targets.names())
def test_two_blocks_with_the_same_inner_names(name: str, tmp_path: Path) -> None:
    target = targets.resolve(name)
    a, b = closed(tmp_path, target, "a", 1), closed(tmp_path, target, "b", 20)
    with_clash = (tmp_path / "a.open.o", tmp_path / "b.open.o")
    text = "int a_run(int), b_run(int); int app(void) { return a_run(2) + b_run(2) - 240; }\n"
    text += f'__attribute__((naked)) void _start(void) {{ __asm__("{START[target.arch]}"); }}\n'
    main = compile_all([CompileJob(text.encode(), tmp_path / "m.o", target, name="m.c")])[0].out
    job = LinkJob("exe", (main, a, b), tmp_path / "app", target, entry="_start", pie=False)
    out = link(job).out
    expected = (1 + 2 + 1 + ord("x")) + (20 + 2 + 20 + ord("x")) - 240
    runner = () if targets.runs_here(target) else target.runner
    try:
        assert subprocess.run([*runner, out], check=False).returncode == expected
    except FileNotFoundError:
        pytest.skip(f"no {runner[0]} here")
    with pytest.raises(Exception, match="duplicate symbol: helper"):
        link(LinkJob("exe", (main, *with_clash), tmp_path / "no", target, entry="_start"))


def test_only_what_is_kept_and_shared_stays_global(tmp_path: Path) -> None:
    data = closed(tmp_path, targets.resolve("x86_64-linux"), "a", 1).read_bytes()
    symbols = elf.symbols(data)
    visible = {s.name for s in symbols if s.bind != elf.STB_LOCAL}
    assert visible == {"a_run", "a_state", fat.weight_symbol(SHARED[1])}
    first = next(i for i, s in enumerate(symbols) if s.bind != elf.STB_LOCAL)
    assert all(s.bind == elf.STB_LOCAL for s in symbols[:first])
    assert {s.name for s in symbols} == {
        s.name for s in elf.symbols((tmp_path / "a.open.o").read_bytes())
    }
    group = next(s for s in elf.sections(data) if s.type == elf.SHT_GROUP)
    assert symbols[group.info].name == fat.weight_symbol(SHARED[1])


def test_what_cannot_be_closed() -> None:
    with pytest.raises(LinkError, match="not an ELF"):
        localize(find_tools().llvm.encode(), bool)
