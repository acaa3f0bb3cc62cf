"""The example with virtual stages, an image library and two models, built by its own Makefile in four ways."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from monobloc.object import elf

ROOT = Path(__file__).resolve().parents[2]
MONOBLOC = f"{sys.executable} -m monobloc"
TOOLS = {"CC": "gcc", "CXX": "g++", "AR": "ar"}
OURS = {"CC": f"{MONOBLOC} cc", "CXX": f"{MONOBLOC} c++", "AR": f"{MONOBLOC} ar"}
WORDS = """\
seven at  26,  23
four  at  39,  87
one   at  83,  35
zero  at  90,  90
three at 133,  28
two   at 137,  85
"""
MODES = ("none", "thin", "full")
LAYERS = re.compile(r"layer_|\w+_k_|mb_finder|mb_digits|run_in")  # and kernels, and what calls them
INDIRECT = re.compile(r"(?:call|jmp) +\*.*")

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "g++", "make"))), reason="no `gcc`, `g++` or `make`: no C++ library to link"
)


@dataclass(frozen=True)
class Made:
    """One way's program: with symbols, and as it is shipped."""

    path: Path
    stripped: int  # bytes

    @property
    def data(self) -> bytes:
        return self.path.read_bytes()

    def code(self) -> dict[str, str]:
        """Instructions of each function."""
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", self.path], capture_output=True, text=True).stdout
        return {m[1]: m[2] for m in re.finditer(r"^\w+ <(\S+)>:\n(.*?)(?=\n\n|\Z)", text, re.M | re.S)}

    def names(self) -> set[str]:
        return {s.name for s in elf.symbols(self.data) if s.defined}

    def model_code(self) -> int:
        return sum(s.size for s in elf.symbols(self.data) if s.type == elf.STT_FUNC and LAYERS.match(s.name))


def make(folder: Path, tools: dict[str, str], *words: str) -> str:
    line = ["make", "-j2", f"MONOBLOC={MONOBLOC}", *(f"{k}={v}" for k, v in tools.items()), *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as a user has it; the models are compiled once."""
    home = tmp_path_factory.mktemp("pipeline")
    keep_out = shutil.ignore_patterns("build", "*.o", "*.d", "*.a", "pipeline")
    shutil.copytree(ROOT / "examples" / "pipeline", home / "pipeline", ignore=keep_out, dirs_exist_ok=True)
    shutil.copy(ROOT / "examples" / "mnist8.onnx", home)
    make(home / "pipeline", TOOLS, "finder.o", "digits.o")
    return home / "pipeline"


@pytest.fixture(scope="module")
def made(folder: Path) -> dict[str, Made]:
    """Every way's program."""
    out = {}
    for way in ("gcc", *MODES):
        for path in (*folder.glob("*.o"), *folder.glob("pix/*.o"), folder / "libpix.a", folder / "pipeline"):
            if path.name not in ("finder.o", "digits.o"):
                path.unlink(missing_ok=True)
        own = () if way == "gcc" else (f"LDFLAGS=-g -flto={way}",)
        make(folder, TOOLS if way == "gcc" else OURS, *own)
        kept = folder / f"pipeline.{way}"
        shutil.move(folder / "pipeline", kept)
        subprocess.run(["strip", "-o", f"{kept}.s", kept], check=True, cwd=folder)
        out[way] = Made(kept, (folder / f"{kept.name}.s").stat().st_size)
    return out


def test_every_way_says_the_same(made: dict[str, Made], folder: Path) -> None:
    for way, program in made.items():
        said = subprocess.run([program.path, "page.ppm"], cwd=folder, capture_output=True, text=True, timeout=60)
        assert (said.returncode, said.stdout) == (0, WORDS), (way, said.stderr)


@pytest.mark.parametrize("mode", MODES)
def test_the_whole_is_smaller(mode: str, made: dict[str, Made]) -> None:
    """By the Makefile as it is: `-Os` builds the models for size, too, where they are compiled again."""
    assert made[mode].stripped <= 0.75 * made["gcc"].stripped


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_model_code_does_not_grow(mode: str, made: dict[str, Made]) -> None:
    assert made[mode].model_code() <= 1.05 * made["none"].model_code()


@pytest.mark.parametrize("mode", MODES)
def test_what_nobody_uses_is_gone(mode: str, made: dict[str, Made]) -> None:
    unused = re.compile(r"pix_(draw|blur|sharpen|median|write|read_bmp)|median_|\w*(Denoise|Sharpen|Equalize|Smooth)")
    unread = re.compile(r"layer_\w+_describe")
    assert [n for n in made["gcc"].names() if unread.match(n)], "the example has no output that is not read"
    assert not [n for n in made[mode].names() if unused.match(n) or unread.match(n)]
    texts = (b"equalizing the histogram", b"the disk is full", b"PNM files hold integers")
    assert texts[0] in made["gcc"].data
    assert not [t for t in texts if t in made[mode].data]


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_paths_of_types_nobody_calls_are_gone(mode: str, made: dict[str, Made]) -> None:
    """The page is cast to float; the library casts from any type to any."""
    code = {s.name: s.size for s in elf.symbols(made[mode].data) if s.type == elf.STT_FUNC}
    assert not [n for n in code if re.match(r"(f32|u8|u16)_(u8|u16)", n)]
    if mode == "full":
        assert not [n for n in code if n.startswith("pix_resize")], "one filter is left, where it is called"


# -- the code ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_the_hot_loop_calls_no_virtual_function(mode: str, made: dict[str, Made]) -> None:
    """Three classes sample an image, the program makes one of them: `Sampler::at` is the fifth of a table."""
    around = [t for n, t in made[mode].code().items() if "sample_square" in n or n == "main"]
    calls = [c for t in around for c in INDIRECT.findall(t) if "*0x20(" in c]
    assert bool(calls) == (mode == "none"), calls
    assert not [n for n in made[mode].names() if "Nearest" in n or "Smooth" in n]


@pytest.mark.parametrize("mode", MODES)
def test_kernels_call_directly(mode: str, made: dict[str, Made]) -> None:
    layers = {n: t for n, t in made[mode].code().items() if LAYERS.match(n)}
    assert len(layers) > 15 and not [n for n, t in layers.items() if INDIRECT.search(t)]


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_accessors_are_constants(mode: str, made: dict[str, Made]) -> None:
    accessor = re.compile(r"(finder|digits)_(in|out)_")
    assert [n for n in made["none"].names() if accessor.match(n)]
    assert not [n for n in made[mode].names() if accessor.match(n)]


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_the_application_keeps_to_its_own_cpu(mode: str, made: dict[str, Made]) -> None:
    """It is compiled for any x86-64; what layers may use must not move into it."""
    code = made[mode].code()
    wide = {n for n, t in code.items() if re.search(r"%[yz]mm", t)}
    assert not {n for n in wide if not LAYERS.match(n)}
