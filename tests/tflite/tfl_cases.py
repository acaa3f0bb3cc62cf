"""Every single operator of the tests"""

from __future__ import annotations

import cases_first
import cases_plain
import cases_products
import cases_quantized
import cases_recurrent
from tfl_single import Case

FAMILIES = {"first": cases_first, "plain": cases_plain, "products": cases_products, "quantized": cases_quantized,
            "recurrent": cases_recurrent}


def every() -> list[Case]:
    cases = [c for m in FAMILIES.values() for c in m.every()]
    assert len({c.name for c in cases}) == len(cases)
    return cases
