"""Operators of torchvision: boxes and regions of pictures."""

from __future__ import annotations

import numpy as np

from monobloc.frontend.torch.node import AtenNode, Reader, Results
from monobloc.frontend.torch.sized import cast, onnx, tensor
from monobloc.ir.types import DType


def nms(n: AtenNode) -> Results:
    """Which boxes stay, from the best on"""
    boxes, scores = (onnx(n, "Unsqueeze", tensor(n, k), n.b.ints(axes)) for k, axes in (("dets", [0]), ("scores", [
        0, 1])))
    most = n.b.const(np.int64((1 << 31) - 1))
    found = onnx(n, "NonMaxSuppression", cast(n, boxes, DType.F32), cast(n, scores, DType.F32), most,
                 n.b.const(np.float32(n["iou_threshold"])))
    return onnx(n, "Gather", found, n.b.const(np.int64(2)), axis=1)


def roi_align(n: AtenNode) -> Results:
    """Regions are rows of the picture's number and the corners"""
    rois = tensor(n, "rois")
    at = cast(n, onnx(n, "Gather", rois, n.b.const(np.int64(0)), axis=1), DType.I64)
    corners = onnx(n, "Gather", rois, n.b.ints([1, 2, 3, 4]), axis=1)
    mode = "half_pixel" if n["aligned"] else "output_half_pixel"
    return onnx(n, "RoiAlign", tensor(n, "input"), corners, at, output_height=n["pooled_height"],
                output_width=n["pooled_width"], sampling_ratio=max(n["sampling_ratio"], 0),
                spatial_scale=n["spatial_scale"], coordinate_transformation_mode=mode)


def roi_pool(n: AtenNode) -> Results:
    if 1 in n.needed:
        n.unsupported("where the maximum of a region was found")
    size = [n["pooled_height"], n["pooled_width"]]
    return [onnx(n, "MaxRoiPool", tensor(n, "input"), tensor(n, "rois"), pooled_shape=size,
                 spatial_scale=n["spatial_scale"]), None]


def deform_conv(n: AtenNode) -> Results:
    mask = n["mask"] if n["use_mask"] else None
    strides, dilations, pads = ([n[f"{name}_h"], n[f"{name}_w"]] for name in ("stride", "dilation", "pad"))
    return onnx(n, "DeformConv", n["input"], n["weight"], n["offset"], n["bias"], mask, pads=pads * 2,
                group=n["groups"], offset_group=n["offset_groups"], kernel_shape=list(n["weight"].shape[2:]),
                strides=strides, dilations=dilations)


READERS: dict[str, Reader] = {
    "torchvision.nms.default": nms, "torchvision.roi_align.default": roi_align,
    "torchvision.roi_pool.default": roi_pool, "torchvision.deform_conv2d.default": deform_conv,
}
