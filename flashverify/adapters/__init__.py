"""Subjects made of what others wrote: a callable with the signature of a known package becomes a subject in one call.

    from flash_attn import flash_attn_func
    from flashverify.adapters import flash_attn

    SUBJECT = flash_attn(flash_attn_func)

Each adapter takes the callable itself, so that any package with such a signature is wired, and returns a subject with a declaration of
what the signature can express. Fields of `Supports` are replaced by name, those of `Contract` by `contract={...}`, the form by `form=`.
"""

from flashverify.adapters.flash_attention import flash_attn, flash_attn_varlen, flash_attn_with_kvcache
from flashverify.adapters.flex import flex_attention
from flashverify.adapters.scaled_dot_product import sdpa
from flashverify.adapters.tutorial import triton_tutorial

__all__ = [
    "flash_attn",
    "flash_attn_varlen",
    "flash_attn_with_kvcache",
    "flex_attention",
    "sdpa",
    "triton_tutorial",
]
