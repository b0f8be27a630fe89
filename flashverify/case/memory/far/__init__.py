"""Tensors of few elements that span nearly 2^32: strides are huge, data is not."""
