"""Memory planning: in which order to run the steps, and where each value lies.

model.py       values, steps, views, in-place pairs; the finished plan
atoms.py       views resolved into atoms that share no bytes
schedule.py    cost of a step in a state; search.py, order.py: the order with the lowest peak
inplace.py     lifetimes, in-place choices, blocks
blocks.py      which blocks collide; pack.py, pack_exact.py, offsets.py: where they go
verify.py      an independent check of the result
planner.py     all of it
"""

from monobloc.plan.model import (
    Budget,
    Buffer,
    Id,
    InPlace,
    Offsets,
    Plan,
    Program,
    Step,
    Stretch,
    Value,
    View,
    align_up,
    natural_align,
)
from monobloc.plan.offsets import assign_offsets
from monobloc.plan.order import Order, lower_bound_over_orders, order_steps, search_peak
from monobloc.plan.planner import make_plan
from monobloc.plan.verify import verify

__all__ = [
    "Budget",
    "Buffer",
    "Id",
    "InPlace",
    "Offsets",
    "Order",
    "Plan",
    "Program",
    "Step",
    "Stretch",
    "Value",
    "View",
    "align_up",
    "assign_offsets",
    "lower_bound_over_orders",
    "make_plan",
    "natural_align",
    "order_steps",
    "search_peak",
    "verify",
]
