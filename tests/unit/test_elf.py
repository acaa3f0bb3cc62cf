"""Reading and extending ELF files, and what damaged ones do."""

import random
import struct
from pathlib import Path

import pytest

from monobloc import targets
from monobloc.errors import LinkError, MonoblocError, UnsupportedError
from monobloc.object import elf
from monobloc.object.toolchain import CompileJob, LinkJob, compile_all, link

SOURCE = b"""
extern const float mb_w_x[4] __attribute__((visibility("hidden")));
static int counter;
__attribute__((visibility("default"))) float get(int i) { counter++; return mb_w_x[i & 3]; }
"""


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("elf") / "get.o"
    compile_all([CompileJob(SOURCE, out, targets.resolve("x86_64-linux"), name="get.c")])
    return out.read_bytes()


def weight(payload: bytes = b"\1\2\3\4" * 4) -> tuple[elf.NewSection, elf.NewSymbol]:
    section = elf.NewSection(".rodata.mb.x", payload, elf.SHF_ALLOC, 64, comdat="mb_w_x")
    return section, elf.NewSymbol("mb_w_x", ".rodata.mb.x", size=len(payload))


def test_reads_a_compilers_object(code: bytes) -> None:
    names = {s.name for s in elf.sections(code)}
    assert {".text.get", ".symtab", ".note.GNU-stack"} <= names
    by_name = {s.name: s for s in elf.symbols(code)}
    assert by_name["get"].type == elf.STT_FUNC and by_name["get"].defined
    assert not by_name["mb_w_x"].defined and by_name["mb_w_x"].visibility == elf.STV_HIDDEN
    assert elf.program_headers(code) == []


def test_added_sections_are_read_back_and_nothing_else_changes(code: bytes) -> None:
    more = elf.add_sections(code, [(".a", b"hello", elf.SHF_EXCLUDE, 8), (".b", b"", 0, 1)])
    assert bytes(elf.get_section(more, ".a") or b"") == b"hello"
    assert elf.get_section(more, ".none") is None
    assert elf.symbols(more) == elf.symbols(code)
    for s in elf.sections(code):
        if s.type != elf.SHT_STRTAB:
            assert elf.get_section(more, s.name) == elf.get_section(code, s.name), s.name
    a = next(s for s in elf.sections(more) if s.name == ".a")
    assert a.offset % 8 == 0 and a.flags == elf.SHF_EXCLUDE


def test_an_undefined_symbol_is_defined_in_place(code: bytes) -> None:
    section, symbol = weight()
    more = b"".join(elf.extend(code, [section], [symbol]))
    before = [s.name for s in elf.symbols(code)]
    assert [s.name for s in elf.symbols(more)] == before  # relocations count on the order
    defined = next(s for s in elf.symbols(more) if s.name == "mb_w_x")
    home = elf.sections(more)[defined.section]
    assert (home.name, defined.size, home.align) == (".rodata.mb.x", 16, 64)
    group = next(s for s in elf.sections(more) if s.type == elf.SHT_GROUP)
    assert elf.symbols(more)[group.info].name == "mb_w_x" and group.index < home.index
    flags, member = struct.unpack("<II", elf.Elf(more).content(group))
    assert (flags, member) == (elf.GRP_COMDAT, home.index)


def test_a_symbol_defined_twice_is_refused(code: bytes) -> None:
    section, symbol = weight()
    more = b"".join(elf.extend(code, [section], [symbol]))
    with pytest.raises(LinkError, match="`mb_w_x` is defined twice"):
        elf.extend(more, [section], [symbol])


@pytest.mark.parametrize("bits", [32, 64])
def test_an_object_from_scratch(bits: int) -> None:
    section, symbol = weight(b"abcd" * 4)
    made = b"".join(elf.write_object(elf.EM_X86_64, [section], [symbol], bits=bits))
    assert bytes(elf.get_section(made, ".rodata.mb.x") or b"") == b"abcd" * 4
    assert [s.name for s in elf.symbols(made)] == ["", "mb_w_x"]
    assert any(s.name == ".note.GNU-stack" for s in elf.sections(made))


def test_buffers_are_passed_on_not_copied() -> None:
    big = memoryview(bytearray(1 << 20))
    chunks = elf.write_object(62, [elf.NewSection(".w", [big, big])])
    assert sum(isinstance(c, memoryview) and c.obj is big.obj for c in chunks) == 2


def test_a_linker_takes_it_and_drops_excluded_sections(code: bytes, tmp_path: Path) -> None:
    section, symbol = weight(struct.pack("<4f", 1, 2, 3, 4))
    note = elf.NewSection(".monobloc.ir", b"x" * 100)
    one, two = tmp_path / "one.o", tmp_path / "two.o"
    one.write_bytes(b"".join(elf.extend(code, [section, note], [symbol])))
    two.write_bytes(b"".join(elf.write_object(elf.EM_X86_64, [section, note], [symbol])))
    x86 = targets.resolve("x86_64-linux")
    image = link(LinkJob("shared", (one, two), tmp_path / "x.so", x86, exports=("get",))).out
    names = [s.name for s in elf.sections(image.read_bytes())]
    assert ".monobloc.ir" not in names
    weights = [s for s in elf.symbols(image.read_bytes()) if s.name == "mb_w_x"]
    assert len(weights) == 1 and weights[0].bind == elf.STB_LOCAL
    rodata = elf.get_section(image.read_bytes(), ".rodata")
    assert rodata is not None and bytes(rodata).count(struct.pack("<4f", 1, 2, 3, 4)) == 1
    writable = [p for p in elf.program_headers(image.read_bytes()) if p.flags & elf.PF_W]
    assert writable and not any(p.flags & elf.PF_X for p in writable)


def test_records_survive_concatenation_and_padding() -> None:
    payloads = [b"", b"a", b"b" * 1001]
    joined = b"\0\0\0".join(elf.pack_record(p) for p in payloads) + b"\0" * 5
    assert [bytes(r) for r in elf.unpack_records(joined)] == payloads


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"junk", "a header needs"),
        (b"j" * 40, "it starts with"),
        (elf.pack_record(b"abc" * 9)[:-9], "bytes of 27"),
        (elf.pack_record(b"abcdefgh")[:-1] + b"x", "checksum"),
    ],
)
def test_damaged_records(data: bytes, text: str) -> None:
    with pytest.raises(LinkError, match=text):
        elf.unpack_records(data)


def test_wrong_files_are_named(code: bytes) -> None:
    for data, text in [
        (b"", "not an ELF"),
        (b"\x7fELF\2\1", "class|header"),
        (code[:40], "header"),
    ]:
        with pytest.raises(LinkError, match=text):
            elf.sections(data)
    with pytest.raises(UnsupportedError, match="big-endian"):
        elf.sections(code[:5] + b"\2" + code[6:])
    executable = code[:16] + struct.pack("<H", elf.ET_EXEC) + code[18:]
    with pytest.raises(LinkError, match="relocatable"):
        elf.add_sections(executable, [(".a", b"", 0, 1)])


def read_everything(data: bytes) -> None:
    parsed = elf.Elf(data)
    for s in parsed.sections:
        parsed.content(s)
    assert len(parsed.symbols) + len(parsed.segments) >= 0
    elf.add_sections(data, [(".x", b"x", 0, 1)])


def test_mutations_give_an_error_or_an_answer(code: bytes) -> None:
    seed = 20240611
    print("seed", seed)
    rng, refused = random.Random(seed), 0
    tables = struct.unpack_from("<Q", code, 40)[0]
    for i in range(1500):
        data = bytearray(code)
        start, end = [(0, 64), (tables, len(code)), (0, len(code))][i % 3]
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(start, end)] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        if i % 7 == 0:
            del data[rng.randrange(len(data)) :]
        try:
            read_everything(bytes(data))
        except MonoblocError:
            refused += 1
    assert 100 < refused < 1500
