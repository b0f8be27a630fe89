"""A correct attention with something kept between calls, a subject for each key under which caches are found in the field."""

import dataclasses

from flashverify.subjects import Contract, Supports
from tests.checks.naive import attention, make

SUPPORTS = Supports(dtypes=("fp16", "bf16", "fp32"), masks=("causal", "key_lengths"), empty=True, backward=False)


def wide(p):
    """O in the dtype of q and LSE in fp32, computed in fp32."""
    o, lse = attention(dataclasses.replace(p, q=p.q.float(), k=p.k.float(), v=p.v.float()))
    return o.to(p.q.dtype), lse


def shapes(p):
    return (p.q.shape, p.k.shape, p.v.shape, p.q.dtype)


def result_under(key):
    """The whole result is kept under a key."""

    def build():
        kept = {}

        def function(p):
            return kept.setdefault(key(p), wide(p))

        return function

    return build


def identity(p):
    tensors = (p.q, p.k, p.v)
    return (shapes(p), *((id(x), x.data_ptr(), x._version, x.stride(), x.dtype) for x in tensors))


def tensors_of_the_first():
    """The tensors of the first call of a shape are read in every later one, as by a captured graph."""
    kept = {}

    def function(p):
        q, k, v = kept.setdefault((shapes(p), p.q.stride(), p.k.stride(), p.v.stride()), (p.q, p.k, p.v))
        return wide(dataclasses.replace(p, q=q, k=k, v=v))

    return function


def addresses_of_an_object():
    """The memory of the tensors of an object is remembered, as by a tensor descriptor that is made once for each tensor."""
    kept = {}

    def function(p):
        found = kept.setdefault((id(p.q), shapes(p), p.q.stride()), (p.q, p.q.data))
        return wide(dataclasses.replace(p, q=found[1]))

    return function


def lengths_under_shapes():
    kept = {}

    def function(p):
        if p.key_lengths is None:
            return wide(p)
        return wide(dataclasses.replace(p, key_lengths=kept.setdefault(shapes(p), p.key_lengths.clone())))

    return function


def scale_under(key):
    def build():
        kept = {}

        def function(p):
            scale = kept.setdefault(key(p), p.scale)
            return wide(dataclasses.replace(p, case=dataclasses.replace(p.case, scale=scale)))

        return function

    return build


def plan_of_an_earlier_batch():
    """`plan` is skipped where batch and shapes are those of the last plan, as by a wrapper that plans once for each batch size."""
    kept = {}

    def function(p):
        plan = kept.setdefault(shapes(p), (p.case.mask.causal, p.key_lengths is not None))
        mask = dataclasses.replace(p.case.mask, causal=plan[0])
        return wide(dataclasses.replace(p, case=dataclasses.replace(p.case, mask=mask)))

    return function


def strides_under(key):
    def build():
        kept = {}

        def function(p):
            stride = kept.setdefault(key(p), p.k.stride())
            last = sum((n - 1) * step for n, step in zip(p.k.shape, stride, strict=True))
            room = p.k.untyped_storage().nbytes() // p.k.element_size() - p.k.storage_offset()
            if not p.k.numel() or last >= room:
                return wide(p)
            return wide(dataclasses.replace(p, k=p.k.as_strided(p.k.shape, stride)))

        return function

    return build


def dtype_under_shapes():
    kept = {}

    def function(p):
        first = kept.setdefault((p.q.shape, p.k.shape), p.q.dtype)
        o, lse = wide(dataclasses.replace(p, v=p.v.to(first).to(p.v.dtype)))
        return o.to(first).to(o.dtype), lse

    return function


STALE = {
    "result, shapes": (result_under(shapes), "values"),
    "result, address": (result_under(lambda p: (p.q.data_ptr(), shapes(p))), "values"),
    "result, address and version": (result_under(lambda p: (p.q.data_ptr(), p.q._version, shapes(p))), "values"),
    "result, object": (result_under(lambda p: (id(p.q), shapes(p))), "values"),
    "result, object, address, version, strides and dtype": (result_under(identity), "values"),
    "tensors, shapes": (tensors_of_the_first, "values"),
    "address, object": (addresses_of_an_object, "values"),
    "lengths, shapes": (lengths_under_shapes, "lengths"),
    "scale, shapes": (scale_under(shapes), "settings"),
    "scale, address": (scale_under(lambda p: (p.k.data_ptr(), shapes(p))), "settings"),
    "plan, shapes": (plan_of_an_earlier_batch, "settings"),
    "strides, shapes": (strides_under(lambda p: (p.k.shape, p.k.dtype)), "storage"),
    "strides, address": (strides_under(lambda p: (p.k.data_ptr(), p.k.shape, p.k.dtype)), "storage"),
    "dtype, shapes": (dtype_under_shapes, "storage"),
}
"""By what is kept and under which key: how the function is built, and the question that must name it."""


def stale(name):
    build, question = STALE[name]
    contract = Contract(deterministic=True, batch_invariant=None)
    return make(build(), supports=SUPPORTS, contract=contract), question


def keeps_nothing():
    return make(wide, supports=SUPPORTS, contract=Contract(deterministic=True, batch_invariant=None))
