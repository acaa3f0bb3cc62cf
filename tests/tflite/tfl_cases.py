"""Every single operator of the tests"""

from __future__ import annotations

import cases_boxes
import cases_first
import cases_plain
import cases_products
import cases_quantized
import cases_recurrent
import cases_signal
import cases_stablehlo
import cases_windows
from tfl_single import Case

FAMILIES = {
    "boxes": cases_boxes, "first": cases_first, "plain": cases_plain, "products": cases_products,
    "quantized": cases_quantized, "recurrent": cases_recurrent, "signal": cases_signal,
    "stablehlo": cases_stablehlo, "windows": cases_windows,
}  # fmt: skip


def every() -> list[Case]:
    cases = [c for m in FAMILIES.values() for c in m.every()]
    assert len({c.name for c in cases}) == len(cases)
    return cases
