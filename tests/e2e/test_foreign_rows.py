"""Kernel rows in themselves: where they fit, what they fill in, what is wrong with them; the stack they take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import foreign_tools as ft
import numpy as np
import pytest
from onnx import helper

import monobloc
from monobloc.cli.settings import work_on
from monobloc.driver import build, read_kernels
from monobloc.errors import ErrorList, LinkError, ModelError
from monobloc.targets import resolve

pytestmark = pytest.mark.skipif(resolve().arch != "x86_64", reason="the library is compiled for x86-64")
VOID = 'prototype = "void twice(const float *, float *, int)"\nreturns = "nothing"'
TWICE = "void twice(const float *x, float *y, int n) { for (int i = 0; i < n; i++) y[i] = 2 * x[i] + 1; }"


def twice_model(path: Path, op: str = "Exp") -> Path:
    return ft.save(path, [helper.make_node(op, ["x"], ["y"], "only")], {}, (3, 5), (3, 5), np.float32)


def twice_row(more: str = "", op: str = "Exp") -> str:
    return f"""op = "{op}"
inputs = ["x: f32[*n]"]
outputs = ["y: f32[*n]"]
call = "twice({{x}}, {{y}}, {{n}})"
library = "libtwice.a"
{VOID}
{more}"""


def test_any_operator_of_any_rank(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    path = ft.rows(tmp_path, twice_row())
    m = monobloc.compile(twice_model(tmp_path / "m.onnx"), kernels=[path])
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_array_equal(m(x), 2 * x + 1)


def test_rows_that_do_not_fit_say_why(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    path = ft.rows(tmp_path, twice_row('when = ["x.rank == 2", "n % 2 == 0"]'),
                   twice_row().replace("f32", "f16"), twice_row().replace("x: f32", "x: const f32"))
    o = ft.options(tmp_path, path.name)
    made = build([twice_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", o)
    why = [text for node, by, text in made.programs[0].context.why if by == "foreign"]
    assert len(why) == 3
    assert "`n % 2 == 0` is not so" in why[0] and "rows.toml:1)" in why[0]
    assert "`x` is f32, the row takes f16" in why[1]
    assert "`x` is no constant" in why[2]
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_allclose(monobloc.load(made.path)(x), np.exp(x), rtol=1e-5)


def test_strict_numerics_take_only_rows_that_say_so(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    for more, used in (("", False), ("strict = true", True)):
        path = ft.rows(tmp_path, twice_row(more))
        made = build([twice_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared",
                     ft.options(tmp_path, path.name, numerics="strict"))
        assert any(n.op == "Foreign" for n in made.programs[0].graph.nodes) == used


def test_operators_that_are_taken_apart_meet_their_rows_first(tmp_path: Path) -> None:
    """Gemm with a transposed weight and a bias it does not take, and Conv with its bias."""
    ft.library(tmp_path, "plain")
    rng = np.random.default_rng(ft.SEED)
    w = rng.standard_normal((4, 6)).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], "fc", transB=1)]
    model = ft.save(tmp_path / "m.onnx", nodes, {"w": w}, (2, 6), (2, 4), np.float32)
    made = build([model], tmp_path / "m.so", "shared", ft.options(tmp_path, lto="none"))
    assert [n.op for n in made.programs[0].graph.nodes] == ["Foreign"]
    x = rng.standard_normal((2, 6)).astype(np.float32)
    np.testing.assert_allclose(monobloc.load(made.path)(x), x @ w.T, rtol=1e-5, atol=1e-5)
    text = """void bias(const float *x, const float *w, const float *b, float *y, int n, int s) {
  for (int i = 0; i < n; i++) y[i] = x[i] * w[0] + b[0] + s; }"""
    ft.library(tmp_path, "plain", text, "bias")
    path = ft.rows(tmp_path, """op = "Conv"
inputs = ["x: f32[1,1,h,v]", "w: f32[1,1,1,1]", "b: f32[1]"]
outputs = ["y: f32[1,1,h,v]"]
when = ["attr.group == 1", "attr.strides == [1, 1]"]
call = "bias({x}, {w}, {b}, {y}, {h * v}, {attr.strides[0]})"
prototype = "void bias(const float *, const float *, const float *, float *, int, int)"
returns = "nothing"
library = "libbias.a" """)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv")]
    weights = {"w": np.full((1, 1, 1, 1), 3, np.float32), "b": np.ones(1, np.float32)}
    model = ft.save(tmp_path / "c.onnx", nodes, weights, (1, 1, 2, 3), (1, 1, 2, 3), np.float32)
    x = rng.standard_normal((1, 1, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(monobloc.compile(model, kernels=[path])(x), 3 * x + 2, rtol=1e-6)


def test_codes_of_the_function_come_back(tmp_path: Path) -> None:
    for code in (7, -3):
        text = f"int fails(const float *x, float *y) {{ return x[0] == y[0] ? 1 : {code}; }}"
        ft.library(tmp_path, "plain", text, "f")
        row = twice_row().replace("twice({x}, {y}, {n})", "fails({x}, {y})").replace("libtwice", "libf")
        path = ft.rows(tmp_path, row.replace(VOID, 'prototype = "int fails(const float *, float *)"'))
        m = monobloc.compile(twice_model(tmp_path / "m.onnx"), kernels=[path])
        with pytest.raises(ModelError, match=f"a kernel of a foreign library failed with code {code}"):
            m(np.ones((3, 5), np.float32))


def test_scratch_is_the_rows_own(tmp_path: Path) -> None:
    text = """void sums(const float *x, float *y, float *s, int n) {
  s[0] = 0; for (int i = 1; i <= n; i++) s[i] = s[i - 1] + x[i - 1];
  for (int i = 0; i < n; i++) y[i] = s[i + 1]; }"""
    ft.library(tmp_path, "plain", text, "sums")
    row = twice_row('scratch = "4 * (n + 1)"').replace("twice({x}, {y}, {n})", "sums({x}, {y}, {scratch}, {n})")
    row = row.replace("libtwice", "libsums").replace("void twice(const float *, float *, int)",
                                                     "void sums(const float *, float *, float *, int)")
    m = monobloc.compile(twice_model(tmp_path / "m.onnx"), kernels=[ft.rows(tmp_path, row)])
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.testing.assert_array_equal(m(x).ravel(), np.cumsum(x))


def test_a_row_may_take_threads(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain")
    row = """op = "MatMul"
inputs = ["a: f16[m,k]", "b: f16[k,n]"]
outputs = ["c: f16[m,n]"]
call = "ug_gemm_part(UG_F16, UG_ROWS, {m}, {n}, {k}, {a}, {k}, {b}, {n}, {c}, {n}, {tid}, {nt})"
header = "ugemm.h"
library = "libugemm.a"
threads = true"""
    path = ft.rows(tmp_path, row)
    w = (np.random.default_rng(ft.SEED).standard_normal((16, 80)) / 4).astype(np.float16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = ft.save(tmp_path / "m.onnx", nodes, {"w": w}, (120, 16), (120, 80))
    x = np.random.default_rng(ft.SEED).standard_normal((120, 16)).astype(np.float16)
    one, two = (monobloc.compile(model, kernels=[path], threads=t)(x) for t in (1, 2))
    assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(one, x.astype(np.float32) @ w.astype(np.float32), rtol=2e-2, atol=4e-3)


# -- the stack ------------------------------------------------------------------------------------------
TABLE = """typedef int (*fn)(const float *, float *, int);
static __attribute__((noinline)) int small(const float *x, float *y, int n) { y[0] = x[n - 1]; return 0; }
static __attribute__((noinline)) int large(const float *x, float *y, int n) {
  volatile char room[5000]; room[n] = 1; y[0] = x[0] + room[n]; return 0; }
static const fn table[] = {small, large};
struct backend { const fn *kernels; int count; } backend = {table, 2};
int entry(int which, const float *x, float *y, int n) { return backend.kernels[which](x, y, n); }"""
RECURSION = """static int down(const float *x, float *y, int n) {
  return n ? down(x + 1, y, n - 1) + (int)x[0] : (int)(y[0] = 1); }
int entry(int which, const float *x, float *y, int n) { return down(x, y, n) * 0 + which * 0; }"""


@pytest.mark.parametrize("lto", ["none", "thin"])
@pytest.mark.parametrize(("text", "least"), [(TABLE, 5000), (RECURSION, 0)])
def test_the_stack_bound_knows_tables_and_recursion(text: str, least: int, lto: str, tmp_path: Path) -> None:
    """A function reached through a table counts; where code calls itself, no bound is claimed."""
    ft.library(tmp_path, "plain", text, "entry")
    row = twice_row('inline = "none"').replace("twice({x}, {y}, {n})", "entry(1, {x}, {y}, {n})")
    row = row.replace("libtwice", "libentry").replace(VOID, 'prototype = "int entry(int, const float *, float *, int)"')
    ft.rows(tmp_path, row)
    made = build([twice_model(tmp_path / "m.onnx")], tmp_path / "m", "exe", ft.options(tmp_path, "rows.toml", lto=lto))
    bound = made.programs[0].interface.stack_bound
    if not least:
        assert bound == 0
        return
    done = subprocess.run([made.path, "--stack", "--seed", "1"], capture_output=True, text=True, check=True)
    found = re.search(r"stack bytes: main (\d+) ", done.stdout)
    assert found and least < int(found[1]) <= bound < 2 * int(found[1])


# -- mistakes -------------------------------------------------------------------------------------------
def test_everything_wrong_with_rows_is_told_at_once(tmp_path: Path) -> None:
    path = ft.rows(tmp_path, """op = "Matmul"
inputs = ["a: f12[m,k]", "b: f16[k n]"]
outputs = ["a: f16[m]"]
call = "f({a}, {q}, {attr.transA ** 2}, {scratch}, {tid})"
library = "no.a"
colour = "red"
""", 'op = "Exp"\ninputs = ["x: f32[*n]"]\noutputs = ["y: f32[*n]"]\ncall = "not a call"\nheader = "no.h"')
    with pytest.raises(ErrorList) as e:
        read_kernels([path])
    text = str(e.value)
    for expected in ("rows.toml:1: unknown operator `Matmul`", "unknown type `f12`", "unknown name `q`",
                     "`k n` is no size", "`attr.transA ** 2` is not allowed",
                     "needs the key `scratch`", "needs `threads = true`",
                     "no.a`: no such file", "unknown key `colour`", "either a `header` or a `prototype`",
                     "rows.toml:10: `call` is no call", "no.h`: no such file"):
        assert expected in text, f"{expected}\n--\n{text}"


def test_a_function_that_is_not_there_is_named_with_its_row(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    ft.rows(tmp_path, twice_row().replace("twice(", "twicce("))
    message = r"rows.toml:1: `twicce` is not defined in .*libtwice.a\n  hint: did you mean `twice`"
    with pytest.raises(LinkError, match=message):
        build([twice_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", ft.options(tmp_path, "rows.toml"))
    assert not (tmp_path / "m.so").exists()


def test_wrong_types_are_told_at_the_row(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    row = twice_row().replace("void twice(const float *,", "void twice(const int *,")
    ft.rows(tmp_path, row, row.replace("Exp", "Sin").replace("{n})", "{n}, 1)"))
    nodes = [helper.make_node("Exp", ["x"], ["h"], "a"), helper.make_node("Sin", ["h"], ["y"], "b")]
    model = ft.save(tmp_path / "m.onnx", nodes, {}, (3, 5), (3, 5), np.float32)
    with pytest.raises(ErrorList) as e:
        build([model], tmp_path / "m.so", "shared", ft.options(tmp_path, "rows.toml"))
    assert "rows.toml:1: the call of `twice` does not compile: incompatible pointer types" in str(e.value)
    assert "rows.toml:11: the call of `twice` does not compile: too many arguments" in str(e.value)


def test_a_mistake_in_a_header_is_told_once(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    (tmp_path / "twice.h").write_text("void twice(const float *, float *, integer);\n")
    row = twice_row().replace('prototype = "void twice(const float *, float *, int)"', 'header = "twice.h"')
    ft.rows(tmp_path, row, row.replace("Exp", "Sin"))
    with pytest.raises(LinkError, match="rows.toml:1: .*twice.h:1 does not compile: type specifier missing"):
        build([twice_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", ft.options(tmp_path, "rows.toml"))


def test_an_attribute_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    ft.rows(tmp_path, twice_row('when = ["attr.alpha == 1"]'))
    made = build([twice_model(tmp_path / "m.onnx")], tmp_path / "m.so", "shared", ft.options(tmp_path, "rows.toml"))
    assert any("Exp has no attribute `alpha`" in text for _, _, text in made.programs[0].context.why)


def test_rows_in_a_project_file(tmp_path: Path) -> None:
    ft.library(tmp_path, "plain", TWICE, "twice")
    twice_model(tmp_path / "m.onnx")
    project = tmp_path / "monobloc.toml"
    project.write_text(f'[[model]]\npath = "m.onnx"\n\n[[kernel]]\n{twice_row()}\n')
    work = work_on([], {"project": project})
    assert [(r.function, r.line) for r in work.options.kernels] == [("twice", 4)]
