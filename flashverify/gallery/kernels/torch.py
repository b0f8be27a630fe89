"""What torch itself brings: scaled_dot_product_attention on the CPU, and FlexAttention."""

from __future__ import annotations

from flashverify.adapters import flex_attention, sdpa

sdpa_flash = sdpa("flash", device="cpu")
sdpa_math = sdpa("math", device="cpu")
sdpa_mask = sdpa("math", attn_mask="bool", device="cpu")
flex = flex_attention(device="cpu")
flex_score = flex_attention(masked_by="score_mod", device="cpu")
