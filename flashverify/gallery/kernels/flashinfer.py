"""FlashInfer's merges in Triton."""

from __future__ import annotations

from flashverify.adapters import merge_state, merge_states
from flashverify.gallery.catalogue import release
from flashverify.gallery.place import modules_of

cascade = modules_of(release("flashinfer"))("flashinfer.triton.cascade")
_OPEN = {"empty_row_o": None, "empty_row_lse": None, "padding": "undefined"}

merge = merge_state(cascade.merge_state, name="merge", contract=_OPEN, dim_max=16, equal_dims=True)
merge_several = merge_states(cascade.merge_states, name="merge_several", contract=_OPEN, dim_max=16, equal_dims=True)
