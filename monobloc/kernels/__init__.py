"""What Python knows of the C kernels: descriptors (tiles, strides, scratch) and packed weights."""
