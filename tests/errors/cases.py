"""Broken models, one per message. Each function makes one and says how it is imported.

The expected text of case `x` is `expected/x.txt`; `python tests/errors/cases.py --update`
rewrites all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

Case = Callable[[Path], Any]  # folder to write to -> model, or (model, arguments)
CASES: dict[str, Case] = {}
EXPECTED = Path(__file__).parent / "expected"


def case(f: Case) -> Case:
    CASES[f.__name__] = f
    return f


def text(body: str, opset: int = 17, head: str = "", ir: int = 8) -> onnx.ModelProto:
    """A model in ONNX's own text form"""
    imports = f'<ir_version: {ir}, opset_import: ["" : {opset}{head}]>'
    return parser.parse_model(imports + "\n" + body)


def relu() -> onnx.ModelProto:
    return text("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")


def with_weight(edit: Callable[[TensorProto], Any], shape: str = "2,3") -> onnx.ModelProto:
    """x + w, with w edited"""
    m = text(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, w) }}")
    t = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    edit(t)
    m.graph.initializer.append(t)
    return m


def external(tmp: Path, size: int = 24, **entries: str) -> Path:
    """x + w, with w's data in `w.bin` unless the entries say otherwise"""

    def edit(t: TensorProto) -> None:
        t.ClearField("raw_data")
        t.data_location = TensorProto.EXTERNAL
        for k, v in ({"location": "w.bin"} | entries).items():
            t.external_data.add(key=k, value=v)

    folder = tmp / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(bytes(size))
    return saved(folder, with_weight(edit))


def saved(folder: Path, m: onnx.ModelProto) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(m.SerializeToString())
    return path


# -- files -----------------------------------------------------------------------------------------
@case
def file_missing(tmp: Path) -> Any:
    return "nowhere/net.onnx"


@case
def file_empty(tmp: Path) -> Any:
    (tmp / "net.onnx").write_bytes(b"")
    return tmp / "net.onnx"


@case
def file_truncated(tmp: Path) -> Any:
    def grow(t: TensorProto) -> None:
        t.CopyFrom(numpy_helper.from_array(np.zeros(9000, np.float32), "w"))

    path = saved(tmp, with_weight(grow))
    path.write_bytes(path.read_bytes()[:20000])
    return path


@case
def file_of_text(tmp: Path) -> Any:
    (tmp / "net.onnx").write_text("#!/bin/sh\necho hello\n")
    return tmp / "net.onnx"


@case
def file_corrupt(tmp: Path) -> Any:
    """the framing holds, but a node's op_type is a number"""
    return b"\x08\x08\x3a\x04\x0a\x02\x20\x05" + b"\x3a\x03\x0a\x01\x22"


@case
def file_of_git_lfs(tmp: Path) -> Any:
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@case
def file_of_tflite(tmp: Path) -> Any:
    return b"\x1c\0\0\0TFL3" + bytes(100)


@case
def folder_instead_of_file(tmp: Path) -> Any:
    saved(tmp, relu())
    (tmp / "sub").mkdir()
    saved(tmp / "sub", relu())
    return tmp / "sub"


@case
def model_without_graph(tmp: Path) -> Any:
    return onnx.ModelProto(ir_version=8).SerializeToString()


@case
def ir_too_new(tmp: Path) -> Any:
    m = relu()
    m.ir_version = 99
    return m


@case
def opset_too_new(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=999)


# -- structure -------------------------------------------------------------------------------------
@case
def cycle(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] c) { a = Add(x, b)  b = Relu(a)  c = Abs(b) }")


@case
def output_made_twice(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Relu(x)  y = Abs(x) }")


@case
def output_is_input(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { x = Relu(x)  y = Abs(x) }")


@case
def input_twice(tmp: Path) -> Any:
    m = relu()
    m.graph.input.append(m.graph.input[0])
    return m


@case
def initializer_twice(tmp: Path) -> Any:
    m = with_weight(lambda t: None)
    m.graph.initializer.append(m.graph.initializer[0])
    return m


@case
def value_missing(tmp: Path) -> Any:
    return text("g (float[2] weights) => (float[2] y) { y = Relu(wieghts) }")


@case
def no_outputs(tmp: Path) -> Any:
    m = relu()
    del m.graph.output[:]
    return m


@case
def output_made_by_nothing(tmp: Path) -> Any:
    m = relu()
    m.graph.output[0].name = "z"
    return m


@case
def kept_output_unknown(tmp: Path) -> Any:
    return relu(), {"keep_outputs": ["Y"]}


# -- operators -------------------------------------------------------------------------------------
@case
def op_unknown(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Rleu(x) }")


@case
def op_newer_than_opset(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Gelu(x) }", opset=17)


@case
def op_of_unknown_domain(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = acme.Fast(x) }", head=', "acme" : 1')


@case
def domain_not_imported(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = acme.Fast(x) }")


@case
def op_unsupported(tmp: Path) -> Any:
    return text("g (uint8[9] x) => (uint8[4,4,3] y) { y = ImageDecoder(x) }", opset=20)


@case
def op_of_onnxruntimes_layout(tmp: Path) -> Any:
    text_ = "g (float[1,8,4,4] x) => (float[1,8,4,4] y) { y = com.microsoft.nchwc.ReorderInput(x) }"
    return text(text_, head=', "com.microsoft.nchwc" : 1')


@case
def input_missing(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Add(x) }")


@case
def input_missing_among_many(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[4] y) { y = Concat <axis = 0> (x, , x) }")


@case
def inputs_too_many(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = Relu(x, x) }")


@case
def outputs_too_many(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y, float[2] z) { y, z = Relu(x) }")


@case
def dtypes_differ(tmp: Path) -> Any:
    return text("g (float[2] x, int64[2] n) => (float[2] y) { y = Add(x, n) }")


@case
def dtype_refused(tmp: Path) -> Any:
    return text("g (float[2] x) => (bool[2] y) { y = And(x, x) }")


@case
def shapes_do_not_broadcast(tmp: Path) -> Any:
    return text("g (float[2,3] x, float[4] z) => (float[2,3] y) { y = Mul(x, z) }")


@case
def attribute_missing(tmp: Path) -> Any:
    return text("g (float[2] x) => (int64[2] y) { y = Cast(x) }")


@case
def attribute_unknown(tmp: Path) -> Any:
    return text("g (float[2] x) => (float[2] y) { y = LeakyRelu <slope = 0.1> (x) }")


@case
def attribute_of_wrong_type(tmp: Path) -> Any:
    return text('g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha = "big"> (x) }')


@case
def attribute_twice(tmp: Path) -> Any:
    m = text("g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha = 0.1> (x) }")
    m.graph.node[0].attribute.append(m.graph.node[0].attribute[0])
    return m


@case
def attribute_says_one_and_holds_another(tmp: Path) -> Any:
    m = text("g (float[2] x) => (float[2] y) { y = LeakyRelu <alpha = 0.1> (x) }")
    m.graph.node[0].attribute[0].type = onnx.AttributeProto.INT
    return m


@case
def if_of_two_types(tmp: Path) -> Any:
    return text(
        """g (bool c, float[2] x) => (float[2] y) {
            d = Not(c)
            y = If(d) <then_branch = t () => (float[2] p) { p = Relu(x) },
                       else_branch = e () => (int64[2] q) { q = Cast<to = 7>(x) }>
        }"""
    )


@case
def both_branches_are_wrong(tmp: Path) -> Any:
    return text(
        """g (bool c, float[2] x, int64[1] s) => (float[2] y) {
            y = If(c) <then_branch = t () => (float[2] p) { p = Tile(x, s) },
                       else_branch = e () => (float[2] q) { q = Gemmm(x) }>
        }"""
    )


@case
def loop_that_changes_a_shape(tmp: Path) -> Any:
    return text(
        """g (int64 n, float[2] x) => (float[a] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[k] s) => (bool c2, float[l] s2) {
                s2 = Concat<axis = 0>(s, x)  c2 = Identity(c) }>
        }"""
    )


@case
def loop_of_unknown_rows(tmp: Path) -> Any:
    return text(
        """g (int64 n, float[2] x) => (float[2] y, float[a,2] r) {
            y, r = Loop(n, , x) <body = b (int64 i, bool c, float[2] s) => (bool c2, float[2] s2, float[2] r0) {
                s2 = Add(s, x)  r0 = Neg(s)  c2 = Identity(c) }>
        }"""
    )


@case
def shape_at_run_time(tmp: Path) -> Any:
    return text("g (float[6] x, int64[1] s) => (float[a] y) { t = Abs(s)  y = Tile(x, t) }")


@case
def attributes_that_divide_by_zero(tmp: Path) -> Any:
    return text("g (float[1,1,4] x) => (float[1,1,3] y, float[1,1,4] z) "
                "{ y = LpPool <kernel_shape = [2], p = 0> (x)  z = Celu <alpha = 0.0> (x) }", opset=18)


# -- declared shapes and types ---------------------------------------------------------------------
@case
def declared_output_shape_contradicts(tmp: Path) -> Any:
    return text("g (float[2,3] x) => (float[3,3] y) { y = Relu(x) }")


@case
def declared_window_shape_contradicts(tmp: Path) -> Any:
    """The last window lies in the padding, and is none."""
    return text("g (float[1,1,4,4] x) => (float[1,1,3,3] y) "
                "{ y = MaxPool <kernel_shape = [2,2], strides = [2,2], pads = [1,0,1,1], ceil_mode = 1> (x) }")


@case
def declared_inner_rank_contradicts(tmp: Path) -> Any:
    return text("g (float[2,3] x) => (float[2,3] y) <float[6] h> { h = Relu(x)  y = Abs(h) }")


@case
def declared_dtype_contradicts(tmp: Path) -> Any:
    return text("g (float[2] x) => (double[2] y) { y = Relu(x) }")


@case
def dimension_negative(tmp: Path) -> Any:
    m = relu()
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = -5
    return m


@case
def dimension_huge(tmp: Path) -> Any:
    m = relu()
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 45
    return m


@case
def result_huge(tmp: Path) -> Any:
    n = 1 << 21
    return text(f"g (float[{n},1] x, float[1,{n}] z) => (float[a,b] y) {{ y = Add(x, z) }}")


@case
def strings_that_are_computed_with(tmp: Path) -> Any:
    return text("g (string[2] x) => (float[2] y) { y = Cast<to = 1>(x) }")


@case
def input_is_sequence(tmp: Path) -> Any:
    return text("g (seq(float[2]) x) => (int64 y) { y = SequenceLength(x) }")


@case
def input_of_complex_numbers(tmp: Path) -> Any:
    return text("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }")


@case
def input_of_no_type(tmp: Path) -> Any:
    m = relu()
    m.graph.input[0].type.tensor_type.elem_type = 77
    return m


# -- sizes that the user gives ---------------------------------------------------------------------
SYMBOLS = "g (float[batch,3,height,width] x) => (float[batch,3,height,width] y) { y = Relu(x) }"


@case
def dims_not_given(tmp: Path) -> Any:
    return saved(tmp, text(SYMBOLS))


@case
def dim_anonymous_not_given(tmp: Path) -> Any:
    return text("g (float[N,?,4] x) => (float[N,?,4] y) { y = Relu(x) }")


@case
def rank_not_given(tmp: Path) -> Any:
    m = relu()
    m.graph.input[0].type.tensor_type.ClearField("shape")
    return m


@case
def dim_with_two_values(tmp: Path) -> Any:
    m = text("g (float[n,2] x, float[n,2] z) => (float[n,2] y) { y = Add(x, z) }")
    return m, {"shapes": {"x": (3, 2), "z": (4, 2)}}


@case
def dim_unknown(tmp: Path) -> Any:
    return text(SYMBOLS), {"dims": {"length": 7}}


@case
def dim_given_negative(tmp: Path) -> Any:
    return text(SYMBOLS), {"dims": {"height": -7}}


@case
def shape_of_wrong_rank(tmp: Path) -> Any:
    return relu(), {"shapes": {"x": (2, 3, 4)}}


@case
def shape_contradicts_declared(tmp: Path) -> Any:
    return relu(), {"shapes": {"x": (2, 4)}}


@case
def shape_of_no_input(tmp: Path) -> Any:
    return relu(), {"shapes": {"z": (2, 4)}}


@case
def bind_of_no_input(tmp: Path) -> Any:
    return relu(), {"bind": {"input": 1}}


@case
def bind_of_wrong_type(tmp: Path) -> Any:
    m = text("g (float[2] x, int64 n) => (float[2] y) { f = Cast <to = 1> (n)  y = Mul(x, f) }")
    return m, {"bind": {"n": 2.5}}


# -- initializers ----------------------------------------------------------------------------------
@case
def initializer_too_short(tmp: Path) -> Any:
    return with_weight(lambda t: setattr(t, "raw_data", t.raw_data[:-1]))


@case
def initializer_without_data(tmp: Path) -> Any:
    return with_weight(lambda t: t.ClearField("raw_data"))


@case
def initializer_in_wrong_field(tmp: Path) -> Any:
    def edit(t: TensorProto) -> None:
        t.ClearField("raw_data")
        t.int64_data.extend([1] * 6)

    return with_weight(edit)


@case
def initializer_stored_twice(tmp: Path) -> Any:
    return with_weight(lambda t: t.float_data.extend([1.0] * 6))


@case
def initializer_out_of_range(tmp: Path) -> Any:
    m = text("g (int8[2] x) => (bool[2] y) { y = Equal(x, w) }")
    m.graph.initializer.append(helper.make_tensor("w", TensorProto.INT8, [2], [1, 2]))
    m.graph.initializer[0].int32_data[0] = 300
    return m


@case
def initializer_of_negative_shape(tmp: Path) -> Any:
    return with_weight(lambda t: t.dims.__setitem__(0, -2))


@case
def initializer_overflows(tmp: Path) -> Any:
    """2^33 * 2^33 * 4 bytes is 0 modulo 2^64"""

    def edit(t: TensorProto) -> None:
        t.dims[:] = [1 << 33, 1 << 33]

    return with_weight(edit)


@case
def initializer_of_complex(tmp: Path) -> Any:
    return with_weight(lambda t: setattr(t, "data_type", TensorProto.COMPLEX64))


@case
def initializer_sparse_outside(tmp: Path) -> Any:
    m = text("g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }")
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    where = helper.make_tensor("i", TensorProto.INT64, [1], [6])
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, [2, 3]))
    return m


# -- external data ---------------------------------------------------------------------------------
@case
def external_missing(tmp: Path) -> Any:
    return external(tmp, location="weights.bin").rename(tmp / "net.onnx")


@case
def external_escapes_upwards(tmp: Path) -> Any:
    return external(tmp, location="../../etc/passwd")


@case
def external_absolute(tmp: Path) -> Any:
    return external(tmp, location="/etc/passwd")


@case
def external_through_link(tmp: Path) -> Any:
    path = external(tmp)
    (tmp / "secret").write_bytes(bytes(24))
    (path.parent / "w.bin").unlink()
    (path.parent / "w.bin").symlink_to(tmp / "secret")
    return path


@case
def external_hard_link(tmp: Path) -> Any:
    path = external(tmp)
    (tmp / "secret").hardlink_to(path.parent / "w.bin")
    return path


@case
def external_is_a_folder(tmp: Path) -> Any:
    path = external(tmp, location="w")
    (path.parent / "w").mkdir()
    return path


@case
def external_unknown_key(tmp: Path) -> Any:
    return external(tmp, __class__="os.system")


@case
def external_giant_length(tmp: Path) -> Any:
    return external(tmp, length=str(1 << 60))


@case
def external_beyond_the_file(tmp: Path) -> Any:
    return external(tmp, offset="8")


@case
def external_negative_offset(tmp: Path) -> Any:
    return external(tmp, offset="-8")


@case
def external_without_folder(tmp: Path) -> Any:
    return external(tmp).read_bytes()


# -- functions -------------------------------------------------------------------------------------
FUNCTIONS = ', "f" : 1'


@case
def function_calls_itself(tmp: Path) -> Any:
    return text(
        """g (float[2] x) => (float[2] y) { y = f.A(x) }
        <domain: "f", opset_import: ["" : 17, "f" : 1]> A (a) => (b) { b = f.B(a) }
        <domain: "f", opset_import: ["" : 17, "f" : 1]> B (a) => (b) { b = f.A(a) }""",
        head=FUNCTIONS,
    )


@case
def function_unfolds_without_end(tmp: Path) -> Any:
    body = '<domain: "f", opset_import: ["" : 17, "f" : 1]> F{} (a) => (c) {{ b = {}(a)  c = {}(b) }}'
    inner = [body.format(i, f"f.F{i + 1}", f"f.F{i + 1}") for i in range(40)]
    return text(
        "g (float[2] x) => (float[2] y) { y = f.F0(x) }\n" + "\n".join([*inner, body.format(40, "Relu", "Relu")]),
        head=FUNCTIONS,
    )


@case
def function_given_too_much(tmp: Path) -> Any:
    return text(
        """g (float[2] x) => (float[2] y) { y = f.A(x, x) }
        <domain: "f", opset_import: ["" : 17]> A (a) => (b) { b = Relu(a) }""",
        head=FUNCTIONS,
    )


@case
def function_body_is_wrong(tmp: Path) -> Any:
    return text(
        """g (float[2] x) => (float[2] y) { y = f.A(x) }
        <domain: "f", opset_import: ["" : 17]> A (a) => (b) { h = Abs(a)  b = Relu(k) }""",
        head=FUNCTIONS,
    )


# -- several at once -------------------------------------------------------------------------------
@case
def all_problems_at_once(tmp: Path) -> Any:
    return text(
        """g (float[2] x, complex64[2] s) => (float[2] y, float[3] z, float[2] v) {
            a = Foo(x)
            b = Relu(a)
            y = LeakyRelu <slope = 1.0> (b)
            z = Abs(x)
            c = Identity(s)
            v = Add(x, nothing)
        }"""
    )


def message(name: str, tmp: Path) -> str:
    """What the import of a case says; empty when nothing is wrong with it"""
    from monobloc.errors import MonoblocError
    from monobloc.frontend.importer import load_onnx
    from monobloc.frontend.importing import Choices

    made = CASES[name](tmp)
    model, arguments = made if isinstance(made, tuple) else (made, {})
    try:
        load_onnx(model, Choices(**arguments))
    except MonoblocError as e:
        return f"{type(e).__name__}: {e}\n".replace(str(tmp), "TMP")
    return ""


if __name__ == "__main__":
    import tempfile

    sys.path.insert(0, str(Path(__file__).parents[2]))
    EXPECTED.mkdir(exist_ok=True)
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            got = message(name, Path(folder))
        assert got, f"{name}: no error"
        if "--update" in sys.argv:
            (EXPECTED / f"{name}.txt").write_text(got)
        print(f"-- {name}\n{got}", end="")
