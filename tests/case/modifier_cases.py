"""Cases with every optional tensor."""

FIELDS = ("key_lengths", "query_lengths", "cu_q", "cu_k", "bitmap", "blocks", "bias", "slopes", "sink")
FIELDS += ("relative_bias", "distance_buckets")
SHAPE = "batch=2 heads_q=4 heads_kv=2 seq_q=19 seq_k=37 dim_qk=24 dim_v=40"
PACKED = "heads_q=4 heads_kv=2 seq_q=19 seq_k=37 packed=0,5,5,17/0,9,20,33"


def tensors(problem):
    found = {name: getattr(problem, name) for name in FIELDS if getattr(problem, name) is not None}
    if problem.pages is not None:
        found |= {f"pages.{name}": getattr(problem.pages, name) for name in ("k", "v", "table")}
    return found | {name: getattr(problem, name) for name in ("q", "k", "v", "do")}
