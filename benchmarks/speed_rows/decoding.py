"""Few queries over many keys: contiguous, paged, latent and in codes, beside a copy of the bytes that they must read."""

from __future__ import annotations

from speed_rows.row import Built, Row, copied, normal, sizes

__all__ = ["codes", "decode", "latent", "merge", "rows"]

_DIM, _PAGE = 128, 64
_SHARE = "share of a copy"


def rows(small: bool) -> list[Row]:
    """Batches, lengths, queries and groups; then what a cache may be made of."""
    lengths = (128,) if small else (1024, 8192, 32768, 131072)
    batches = (1,) if small else (1, 8, 64)
    found = []
    for heads, queries, paged in ((64, 1, False), (64, 16, False), (8, 1, False), (64, 1, True)):
        what = f"{queries} {'queries' if queries > 1 else 'query'}, {heads} of 8 heads{', paged' if paged else ''}"
        for batch in batches:
            for length in lengths:
                if batch * length > 8 * 131072:
                    continue
                values = {"batch": batch, "length": length, "heads": heads, "queries": queries, "paged": paged}
                found.append(Row(f"Decoding, {what}", f"batch {batch}, {length:,} keys", "decoding:decode", values))
    for batch, length in ((1, 128),) if small else ((1, 32768), (8, 32768), (64, 8192)):
        what, values = f"batch {batch}, {length:,} keys", {"batch": batch, "length": length}
        found.append(Row("Decoding a latent cache, 576 and 512 channels, 128 heads", what, "decoding:latent", values))
        for name in ("e4m3", "int8", "int4"):
            theme = "Decoding a cache in codes, 64 of 8 heads"
            found.append(Row(theme, f"{name}, {what}", "decoding:codes", values | {"name": name}))
    found.append(
        Row("Merging eight parts", "4 x 16 heads x 4,096 rows", "decoding:merge", {"rows": 64 if small else 4096})
    )
    return found


def decode(*, device: str, batch: int, length: int, heads: int, queries: int, paged: bool) -> Built:
    """`decode`, causal where there are several queries."""
    import torch

    import flashverify_kernels as kernels

    q = normal(batch, heads, queries, _DIM, dtype="fp16", device=device)
    shape, table = (batch, 8, length, _DIM), None
    if paged:
        pages = batch * length // _PAGE
        shape = (pages, _PAGE, 8, _DIM)
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(1))
        table = order.view(batch, -1).to(device, torch.int32)
    k, v = (normal(*shape, dtype="fp16", device=device) for _ in "kv")
    causal = "bottom-right" if queries > 1 else None
    return Built(
        {"bundled": lambda: kernels.decode(q, k, v, causal=causal, block_table=table), "copy": copied(k, v)},
        sizes(k, v),
        _SHARE,
    )


def latent(*, device: str, batch: int, length: int) -> Built:
    """`latent_attention` of one query."""
    import flashverify_kernels as kernels

    q = normal(batch, 128 if device == "cuda" else 4, 1, 576, dtype="fp16", device=device)
    kv = normal(batch, 1, length, 576, dtype="fp16", device=device)
    return Built({"bundled": lambda: kernels.latent_attention(q, kv, dim_v=512), "copy": copied(kv)}, sizes(kv), _SHARE)


def codes(*, device: str, batch: int, length: int, name: str) -> Built:
    """`quantised_decode` with a scale a head, beside `decode` in fp16."""
    import torch

    import flashverify_kernels as kernels
    from flashverify_kernels.quantised import Quantised, quantised_decode

    q = normal(batch, 64, 1, _DIM, dtype="fp16", device=device)
    whole = [normal(batch, 8, length, _DIM, dtype="fp16", device=device) for _ in "kv"]
    scale = torch.full((batch, 8, 1), 0.03125, device=device)
    width = _DIM // 2 if name == "int4" else _DIM
    made = []
    for x in whole:
        if name == "e4m3":
            bits = (x * 32).to(torch.float8_e4m3fn).view(torch.uint8)
        else:
            bits = (x * 32).round().clamp(-127, 127).to(torch.int8).view(torch.uint8)[..., :width].contiguous()
        made.append(Quantised(codes=bits, scale=scale, format=name, keys_per_scale=length))
    k, v = made
    return Built(
        {
            "bundled": lambda: quantised_decode(q, k, v),
            "copy": copied(k.codes, v.codes),
            "decode in fp16": lambda: kernels.decode(q, *whole),
        },
        sizes(k.codes, v.codes),
        _SHARE,
    )


def merge(*, device: str, rows: int) -> Built:
    """`merge`, which reads every part once."""
    import flashverify_kernels as kernels

    batch, heads = (4, 16) if device == "cuda" else (1, 2)
    o = normal(8, batch, heads, rows, _DIM, dtype="fp16", device=device)
    lse = normal(8, batch, heads, rows, dtype="fp32", device=device)
    return Built({"bundled": lambda: kernels.merge(o, lse), "copy": copied(o)}, sizes(o), _SHARE)
