"""An application that calls what a flag has taken out of the header is told which flag, however it was compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from border import model
from onnx import helper

from monobloc.driver import build, compile_source, compile_to_object, link
from monobloc.errors import LinkError
from monobloc.options import Options

O = Options(lto="none")  # noqa: E741
CALLS = "int a_run(void); float *a_in_x(void); const float *a_out_y(void);\n"
MAIN = "int main(void) { a_in_x()[0] = 1; return a_run() + (a_out_y()[0] > 2); }\n"
FLAGS = [
    ({"bind": {"x": np.zeros(4, np.float32)}}, "`a` has no such input: `--bind x` made the input a constant"),
    ({"start_from": ("h",)}, "`a` has no such input: `--from` starts behind it"),
    ({"keep_outputs": ("z",)}, "`a` has no such output: `--keep-output` does not name it"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Tanh", ["h"], ["y"]),
             helper.make_node("Neg", ["h"], ["z"])]
    for name in "ab":
        onnx.save(model(nodes, [("x", "f32", [4])], [("y", "f32", [4]), ("z", "f32", [4])]), tmp_path / f"{name}.onnx")
    (tmp_path / "declared.c").write_text(CALLS + MAIN)
    (tmp_path / "included.c").write_text('#include "a.h"\n' + MAIN)
    return tmp_path


@pytest.mark.parametrize("source", ["declared.c", "included.c"])
@pytest.mark.parametrize(("flags", "why"), FLAGS, ids=["bind", "from", "keep-output"])
def test_built_from_sources(source: str, flags: dict, why: str, folder: Path) -> None:
    with pytest.raises(LinkError, match=why):
        build([folder / "a.onnx", folder / source], folder / "app", "exe", replace(O, **flags))


@pytest.mark.parametrize(("flags", "why"), FLAGS, ids=["bind", "from", "keep-output"])
def test_linked_from_objects(flags: dict, why: str, folder: Path) -> None:
    compile_to_object(folder / "a.onnx", folder / "a.o", O)
    compile_source(folder / "declared.c", folder / "app.o", O)
    with pytest.raises(LinkError, match=why):
        link([folder / "app.o", folder / "a.o"], folder / "app", "exe", replace(O, **flags))


def test_a_model_that_became_a_part_of_another_program(folder: Path) -> None:
    """Also where the application is only looked at: without a word, all outputs would be dead."""
    compile_source(folder / "declared.c", folder / "app.o", O)
    o = replace(O, connect=(("b.x", "a.x"),))
    models = [folder / "a.onnx", folder / "b.onnx"]
    for inputs, emit, more in (([*models, folder / "declared.c"], "exe", {}),
                               (models, "object", {"used_by": (folder / "app.o",)})):
        with pytest.raises(LinkError, match="`--connect` made `a` a part of `pipeline`"):
            build(inputs, folder / "app", emit, replace(o, **more))  # type: ignore[arg-type]


def test_a_part_of_another_program_whose_name_has_a_dot(folder: Path) -> None:
    """Its functions are missing if they are called, and free for the application's own."""
    (folder / "a.onnx").rename(folder / "a.v1.onnx")
    o = replace(O, connect=(("b.x", "a.v1.y"),))
    models, app = [folder / "a.v1.onnx", folder / "b.onnx"], folder / "app.c"
    app.write_text("int a_x2e_v1_run(void);\nint main(void) { return a_x2e_v1_run(); }\n")
    with pytest.raises(LinkError, match=r"`--connect` made `a\.v1` a part of `pipeline`"):
        build([*models, app], folder / "app", "exe", o)
    app.write_text("int a_x2e_v1_run(void) { return 0; }\nint main(void) { return a_x2e_v1_run(); }\n")
    build([*models, app], folder / "app", "exe", o)


def test_other_missing_names_are_the_tools_business(folder: Path) -> None:
    (folder / "lost.c").write_text(CALLS + "int helper(void);\n" + MAIN.replace("return", "return helper() +"))
    with pytest.raises(Exception, match="undefined symbol: helper"):
        build([folder / "a.onnx", folder / "lost.c"], folder / "app", "exe", O)
