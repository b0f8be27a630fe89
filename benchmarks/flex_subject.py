"""FlexAttention as torch compiles it, as a subject of a search."""

from flashverify.adapters import flex_attention

FLEX = flex_attention(compiled=True, name="flex-compiled")
