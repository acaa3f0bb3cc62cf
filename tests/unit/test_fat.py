"""Objects: written, read, and linked by linkers that know nothing of them."""

import array
import json
import random
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from monobloc import targets
from monobloc.errors import LinkError, MonoblocError
from monobloc.object import elf, fat
from monobloc.object.toolchain import CompileJob, archive, compile_all, find_tools, relocatable

FLOATS = memoryview(array.array("f", [1, 2, 3, 4]))
MORE = memoryview(array.array("f", [5] * 1000))
HASH, UNUSED = fat.weight_hash(FLOATS), fat.weight_hash(MORE)
TARGET = targets.resolve("x86_64-linux")
APP = "float fa(int), fb(int);\nint main(void) { return (int)(fa(1) * 10 + fb(2)); }\n"  # 23


def source(name: str) -> bytes:
    return f"""extern const float mb_w_{HASH}[4] __attribute__((visibility("hidden")));
    __attribute__((visibility("default"))) float {name}(int i) {{ return mb_w_{HASH}[i & 3]; }}
    """.encode()


def make(folder: Path, name: str) -> fat.Object:
    native, bitcode = folder / f"{name}.native.o", folder / f"{name}.bc"
    job = {"source": source(name), "target": TARGET, "name": f"{name}.c"}
    compile_all([CompileJob(out=native, **job), CompileJob(out=bitcode, kind="bitcode", **job)])
    weights = {HASH: fat.Weight(FLOATS), UNUSED: fat.Weight(MORE, 128)}
    ir = f"graph {name}"
    return fat.Object(native.read_bytes(), ir, bitcode.read_bytes(), {"name": name}, weights)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("fat")
    for name in ("fa", "fb"):
        make(folder, name).write(folder / f"{name}.o", llvm=find_tools().llvm)
    (folder / "app.c").write_text(APP)
    return [folder / "fa.o", folder / "fb.o"]


def check(found: list[fat.Object], names: list[str]) -> None:
    assert [o.summary["name"] for o in found] == names
    for o in found:
        assert o.ir == f"graph {o.summary['name']}"
        assert bytes(o.bitcode[:4]) == b"BC\xc0\xde"
        assert bytes(o.weights[HASH].data) == bytes(FLOATS.cast("B"))
        assert bytes(o.weights[UNUSED].data) == bytes(MORE.cast("B"))
        assert o.weights[UNUSED].align == 128


def test_round_trip(objects: list[Path]) -> None:
    for path in objects:
        check(fat.read(path), [path.stem])
        check(fat.read(path.read_bytes()), [path.stem])
        assert fat.is_monobloc(path.read_bytes())


def test_weights_are_views_into_the_file(objects: list[Path]) -> None:
    (o,) = fat.read(objects[0])
    owners = [memoryview(w.data).obj for w in o.weights.values()]
    assert all(owner is memoryview(o.code).obj for owner in owners)


def test_the_same_parts_give_the_same_bytes(objects: list[Path], tmp_path: Path) -> None:
    make(tmp_path, "fa").write(tmp_path / "other.o", llvm=find_tools().llvm)
    assert (tmp_path / "other.o").read_bytes() == objects[0].read_bytes()


def gcc(folder: Path, *inputs: str) -> int:
    cc = shutil.which("gcc")
    if not cc:
        pytest.skip("no gcc here")
    out = folder / "app"
    subprocess.run([cc, folder / "app.c", *inputs, "-o", out], check=True, cwd=folder)
    image = out.read_bytes()
    assert not any(".monobloc" in s.name for s in elf.sections(image))
    kept = [s.name for s in elf.symbols(image) if s.name.startswith(fat.SYMBOL_PREFIX)]
    assert sorted(kept) == sorted(map(fat.weight_symbol, [HASH, UNUSED]))  # each once
    return subprocess.run([out], check=False).returncode


def test_gcc_links_it(objects: list[Path]) -> None:
    assert gcc(objects[0].parent, "fa.o", "fb.o") == 23
    assert gcc(objects[0].parent, "fa.o", "fb.o", "-static") == 23


def test_weights_far_away(objects: list[Path], tmp_path: Path) -> None:
    o = make(tmp_path, "fa")
    (tmp_path / "app.c").write_text("float fa(int);\nint main(void) { return (int)fa(2); }\n")
    o.write(tmp_path / "fa.o", llvm="22.1.8", large_over=100)
    large = [s for s in elf.sections((tmp_path / "fa.o").read_bytes()) if ".lrodata" in s.name]
    assert len(large) == 2 and all(s.flags & elf.SHF_X86_64_LARGE for s in large)
    assert gcc(tmp_path, "fa.o") == 3
    check(fat.read(tmp_path / "fa.o"), ["fa"])


@pytest.mark.parametrize("how", ["gcc", "ld", "lld"])
def test_partial_links_keep_both(objects: list[Path], how: str) -> None:
    folder, out = objects[0].parent, objects[0].parent / f"both_{how}.o"
    if how == "lld":
        relocatable(objects, out, TARGET)
    else:
        tool = shutil.which(how)
        if not tool:
            pytest.skip(f"no {how} here")
        flags = ["-r"] + (["-nostdlib"] if how == "gcc" else [])
        subprocess.run([tool, *flags, *objects, "-o", out], check=True)
    check(fat.read(out), ["fa", "fb"])
    assert gcc(folder, out.name) == 23


def test_archives(objects: list[Path]) -> None:
    folder = objects[0].parent
    plain = folder / "plain.o"
    compile_all([CompileJob(b"int plain;", plain, TARGET, name="plain.c")])
    lib = archive([plain, *objects], folder / "lib.a")
    found = fat.read(lib)
    check(found, ["fa", "fb"])
    assert found[0].name == f"{lib}(fa.o)" and not fat.is_monobloc(plain.read_bytes())
    assert gcc(folder, "lib.a") == 23


@pytest.mark.parametrize("tool", [["strip", "-g"], ["objcopy"]])
def test_tools_leave_it_whole(objects: list[Path], tmp_path: Path, tool: list[str]) -> None:
    if not shutil.which(tool[0]):
        pytest.skip(f"no {tool[0]} here")
    copy = tmp_path / "copy.o"
    copy.write_bytes(objects[0].read_bytes())
    subprocess.run([*tool, copy], check=True)
    check(fat.read(copy), ["fa"])


def refused(o: fat.Object, llvm: str = "22.1.8", **changes: object) -> str:
    """What reading says of an object whose summary was changed behind our back."""
    chunks = o.chunks(llvm=llvm)
    with pytest.raises(LinkError) as caught:
        fat.read(rewrite(b"".join(map(bytes, chunks)), changes), llvm="22.1.8")
    return str(caught.value)


def rewrite(data: bytes, changes: Mapping[str, object]) -> bytes:
    (section,) = (s for s in elf.sections(data) if s.name == fat.SUMMARY)
    old = data[section.offset : section.offset + section.size]
    summary = json.loads(bytes(elf.unpack_records(old)[0])) | dict(changes)
    new = elf.pack_record(json.dumps(summary, separators=(",", ":"), sort_keys=True).encode())
    new = new.ljust(section.size, b"\0")
    assert len(new) == section.size
    return data.replace(old, new)


def test_versions(objects: list[Path]) -> None:
    (o,) = fat.read(objects[0])
    plain = fat.Object(elf.empty(elf.EM_X86_64), o.ir, o.bitcode, {"name": "m"}, {}, "m.o")
    assert fat.read(b"".join(plain.chunks(llvm="22.1.0")), llvm="22.1.8")
    newer = refused(plain, format=7)
    assert "object format 7, this version reads format 1" in newer and "update" in newer
    text = refused(plain, llvm="23.1.4")
    assert "compiled with LLVM 23.1.4, this link uses LLVM 22.1.8" in text
    assert "hint: compile the model again" in text


def test_other_machines_do_not_mix(objects: list[Path]) -> None:
    (o,) = fat.read(objects[0])
    arm = fat.Object(elf.empty(elf.EM_AARCH64), "", b"", {}, {}, "arm.o")
    assert fat.same_machine([o, o]) == elf.EM_X86_64
    with pytest.raises(LinkError, match=r"fa.o is for x86-64, arm.o is for aarch64"):
        fat.same_machine([o, arm])


def test_a_weight_that_is_gone(objects: list[Path]) -> None:
    (o,) = fat.read(objects[0])
    bare = fat.Object(elf.empty(62), o.ir, o.bitcode, {}, {"x": fat.Weight(b"abcd")})
    assert "weight `y` should have 4 bytes, found nothing" in refused(bare, weights={"y": 4})
    assert "weight `x` should have 9 bytes, found 4 bytes" in refused(bare, weights={"x": 9})


def test_what_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_bytes(elf.empty(62))
    with pytest.raises(LinkError, match="x.o: is not a Monobloc object"):
        fat.read(tmp_path / "x.o")
    with pytest.raises(LinkError, match="no such file"):
        fat.read(tmp_path / "y.o")
    assert not fat.is_monobloc(b"") and not fat.is_monobloc(b"\x7fELF")


def test_a_graph_that_explodes_is_refused() -> None:
    import struct
    import zlib

    bomb = struct.pack("<Q", 1 << 62) + zlib.compress(bytes(1 << 20))
    honest = struct.pack("<Q", 1000) + zlib.compress(bytes(1 << 20))
    for data in (bomb, honest):
        with pytest.raises(LinkError, match="damaged graph"):
            fat._unpack_text(memoryview(data))


def test_mutations_give_an_error_or_an_answer(objects: list[Path]) -> None:
    seed = 7
    print("seed", seed)
    rng, good, refusals = random.Random(seed), objects[0].read_bytes(), 0
    for i in range(600):
        data = bytearray(good)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if i % 5 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            fat.read(bytes(data))
        except MonoblocError:
            refusals += 1
    assert 60 < refusals < 600
