import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashverify.case import parse_case
from flashverify.errors import CaseTextError

BAD_LINES = {
    "": "a case starts with 'fv1', found ''",
    "fv2 batch=1": "a case starts with 'fv1', found 'fv2'",
    "fv1 nonsense": "unknown word 'nonsense' in a case; accepted keys: batch,",
    "fv1 colour=1": "unknown word 'colour=1'",
    "fv1 batch=1 batch=2": "batch is given twice in a case",
    "fv1 batch=x": "batch='x' is not accepted: an integer",
    "fv1 scale=1e999": "scale='1e999' is not accepted: beyond the range of a float64",
    "fv1 scale=nan": "scale=nan is not accepted: None or a finite number",
    "fv1 alibi=maybe": "alibi='maybe' is not accepted: yes, no or wild",
    "fv1 window=1": "window='1' is not accepted",
    "fv1 window=-1,0": "window=(-1, 0) is not accepted: sides are None or >= 0",
    "fv1 blocks=1,2": "blocks='1,2' is not accepted",
    "fv1 blocks=0,2,3,4": "rows, keys >= 1",
    "fv1 bitmap=257,0": "0 <= live <= 256",
    "fv1 packed=0,2/0,1,1": "packed='0,2/0,1,1' is not accepted",
    "fv1 packed=1,2/0,1": "cumulative lengths start at 0 and never fall",
    "fv1 packed=0,1/0,1 klen=1": "key_lengths=(1,) is not accepted: packed sequences have their own lengths",
    "fv1 packed=0,1/0,1 qlen=1": "query_lengths=(1,) is not accepted: packed sequences have their own lengths",
    "fv1 packed=0,1/0,1 batch=2": "batch=2 is not accepted: 1 with packed sequences",
    "fv1 packed=0,2/0,1": "packed cu_q=(0, 2) is not accepted: at most seq_q=1 rows",
    "fv1 packed=0,1/0,2": "packed cu_k=(0, 2) is not accepted: at most seq_k=1 keys",
    "fv1 packed=0,1/0,1 page_size=16": "page_size=16 is not accepted: None with packed sequences",
    "fv1 packed=0,1/0,0 tree=-1": "packed cu_k=(0, 0) is not accepted: a key per row under a tree mask",
    "fv1 seq_q=2 seq_k=2 packed=0,1,2/0,1,2 tree=-1,0": "the parent of node 0 is -1 or a smaller index",
    "fv1 seq_q=2 packed=0,1/0,1 tree=-1,0": "tree=(-1, 0) is not accepted: one parent per query, cu_q[-1]=1",
    "fv1 seq_q=2 seq_k=2 packed=0,1,2/0,1,2 tree=-1/-1": "a tree for each entry of a dense batch of two or more",
    "fv1 batch=2 tree=-1/0": "the parent of node 0 is -1 or a smaller index",
    "fv1 batch=3 tree=-1/-1": "tree=((-1,), (-1,)) is not accepted: one tree, or one per entry, batch=3",
    "fv1 batch=2 seq_q=2 seq_k=2 tree=-1,0/-1": "one parent per query, seq_q=2",
    "fv1 blocks=1,2,3,4,2": "after the seed at most 2 of 0 or 1",
    "fv1 bitmap=1,2,0,0": "after the seed at most 1 of 0 or 1",
    "fv1 edits=x:0,0,0,0:1": "edit tensor='x' is not accepted",
    "fv1 edits=q:0,0,0:1": "edits='q:0,0,0:1' is not accepted",
    "fv1 edits=q:0,0,0,-1:1": "edit index=(0, 0, 0, -1) is not accepted: four integers >= 0",
    "fv1 edits=q:0,0,1,0:1": "inside q of shape (1, 1, 1, 16)",
    "fv1 launch=a:1,a:2": "sorted pairs, each name once",
    "fv1 launch=a-b:1": "names are identifiers",
    "fv1 batch=-1": "batch=-1 is not accepted: 0 <= size < 2**31",
    "fv1 dim_qk=0": "dim_qk=0 is not accepted: 1 <= size < 2**31",
    "fv1 heads_q=3 heads_kv=2": "heads_q=3 is not accepted: a multiple of heads_kv=2",
    "fv1 dtype=fp8": "dtype='fp8' is not accepted: one of ('fp16', 'bf16', 'fp32')",
    "fv1 precision=half": "precision='half' is not accepted",
    "fv1 precision=tf32": "'ieee' unless dtype is fp32",
    "fv1 dropout=1": "dropout=1.0 is not accepted: 0 <= dropout < 1",
    "fv1 regime=odd": "regime='odd' is not accepted",
    "fv1 seed=-1": "seed=-1 is not accepted",
    "fv1 layout=sbhd": "layout='sbhd' is not accepted",
    "fv1 gap=4097": "gap=4097 is not accepted",
    "fv1 offset=-1": "offset=-1 is not accepted",
    "fv1 padding=one": "padding='one' is not accepted",
    "fv1 strided=maybe": "strided='maybe' is not accepted: yes or no",
    "fv1 page_size=0": "page_size=0 is not accepted",
    "fv1 softcap=0": "softcap=0.0 is not accepted",
    "fv1 bias=row": "bias='row' is not accepted",
    "fv1 do=sparse": "do='sparse' is not accepted",
    "fv1 causal=middle": "causal='middle' is not accepted",
    "fv1 klen=1,1": "key_lengths=(1, 1) is not accepted: one length per sequence, batch=1",
    "fv1 klen=2": "key_lengths=(2,) is not accepted: lengths <= 1",
    "fv1 qlen=-1": "query_lengths=(-1,) is not accepted: lengths are >= 0",
    "fv1 tree=-1,0": "tree=(-1, 0) is not accepted: one parent per query, seq_q=1",
    "fv1 seq_q=2 seq_k=2 tree=-1,1": "the parent of node 1 is -1 or a smaller index",
    "fv1 seq_q=2 seq_k=1 tree=-1,0": "seq_k=1 is not accepted: at least seq_q=2 under a tree mask",
    "fv1 prefix=1": "prefix_lengths=(1,) is not accepted: only with causal",
    "fv1 prefix=1,1 causal=top-left": "prefix_lengths=(1, 1) is not accepted: one length per sequence, batch=1",
    "fv1 prefix=2 causal=top-left": "prefix_lengths=(2,) is not accepted: lengths <= 1",
    "fv1 prefix=-1 causal=top-left": "prefix_lengths=(-1,) is not accepted: lengths are >= 0",
    "fv1 prefix=1 causal=top-left window=1,2": "prefix_lengths=(1,) is not accepted: only with a window whose right side is None, "
    "got (1, 2)",
    "fv1 prefix=1 tree=-1": "prefix_lengths=(1,) is not accepted: only with causal",
    "fv1 packed=0,1/0,1 prefix=1,0 causal=top-left": "prefix_lengths=(1, 0) is not accepted: one length per sequence, 1 packed sequences",
    "fv1 seq_q=٣٣": "seq_q='٣٣' is not accepted: ASCII, digits without underscores between them",
    "fv1 seq_q=1_6": "seq_q='1_6' is not accepted: ASCII",
    "fv1 scale=1_0.5": "scale='1_0.5' is not accepted: ASCII",
    "fv1 launch=block_m:1_6": "launch='block_m:1_6' is not accepted: ASCII",
    "fv1 seq_q=3 klen=1,-1_0": "klen='1,-1_0' is not accepted: ASCII",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_refused_in_words(line):
    with pytest.raises(CaseTextError) as caught:
        parse_case(line)

    assert BAD_LINES[line] in str(caught.value)


@given(
    st.lists(
        st.sampled_from(
            ("fv1", "edits=", "tree=", "packed=", ",", ":", "/", ";", "=", "-1", "0", "q", "nan", " ", "launch=")
        ),
        max_size=9,
    )
)
def test_any_line_is_parsed_or_refused_as_text(parts):
    with contextlib.suppress(CaseTextError):
        parse_case("fv1 " + "".join(parts))
