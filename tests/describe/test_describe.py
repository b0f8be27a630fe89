"""What a description says of a declaration."""

import dataclasses
import json
import shlex

import pytest
from click.testing import CliRunner

from flashverify import Contract, Form, Supports, subject
from flashverify.case import parse_case
from flashverify.cli import main
from flashverify.describe.describe import described
from flashverify.describe.text import description_text
from flashverify.describe.untested import untested

WIDEST = Supports(
    precisions=("ieee", "tf32", "tf32x3"),
    masks=(
        "causal",
        "window",
        "key_lengths",
        "query_lengths",
        "packed",
        "tree",
        "blocks",
        "bitmap",
        "prefix_lengths",
        "selection",
    ),
    window_alignments=("top-left", "bottom-right"),
    banded_trees=True,
    entry_trees=True,
    logits=("softcap", "alibi", "bias", "sink", "relative_bias"),
    huge_modifiers=True,
    dropout=True,
    page_sizes=(16,),
    empty=True,
    dim_multiple=1,
    scales=("positive", "zero", "negative"),
    dlse=True,
    transposed=True,
    launch=(("block_m", (16, 32)),),
)
GRADIENTS = frozenset({"dq", "dk", "dv", "dbias", "dsink", "drelative_bias"})
CONTRACT = Contract(deterministic=True, batch_invariant=True, graphs=True, gradients=GRADIENTS)


def said(supports=WIDEST, contract=CONTRACT):
    return {(each.topic, each.what) for each in untested(supports, contract)}


def test_of_the_widest_declaration_only_the_largest_head_dim_is_left():
    assert said() == {("head dims", "above 256")}


NARROWED = {
    "dtypes": ({"dtypes": ("fp32",)}, "fp16, bf16"),
    "precisions": ({"precisions": ("ieee",)}, "fp32 products in tf32, tf32x3"),
    "masks": ({"masks": WIDEST.masks[:5]}, "tree, blocks, bitmap, prefix_lengths, selection"),
    "required": ({"required_masks": ("causal",)}, "cases without causal"),
    "apart": (
        {"required_masks": ("tree",), "banded_trees": False},
        "declared, but they cannot stand with the required tree",
    ),
    "combined": ({"combine_masks": False}, "parts combined"),
    "causal": ({"causal": ("top-left",)}, "causal bottom-right"),
    "rectangular": ({"rectangular_causal": False}, "causal with other rows than keys"),
    "sides": ({"window_sides": ("left",)}, "windows bounded on the right"),
    "alignments": ({"window_alignments": ("top-left",)}, "windows without causal, aligned bottom-right"),
    "banded trees": ({"banded_trees": False}, "a tree with causal or a window"),
    "trees": ({"entry_trees": False}, "a tree for each entry of a batch"),
    "logits": ({"logits": ("bias", "sink", "softcap", "relative_bias")}, "alibi"),
    "slopes": ({"wild_slopes": False}, "ALiBi with negative and large slopes"),
    "huge": ({"huge_modifiers": False}, "slopes, sinks and biases of 2^95 and more"),
    "dropout": ({"dropout": False}, "dropout"),
    "pages": ({"page_sizes": ()}, "paged keys"),
    "freed pages": ({"freed_pages": False}, "pages before a window that were freed, with garbage in their entries"),
    "empty": ({"empty": False}, "empty batches and sequences"),
    "square": ({"square": True}, "other rows than keys"),
    "multiple": ({"seq_multiple": 64}, "rows and keys that are no multiple of 64: tails of tiles"),
    "rows": ({"seq_q": (1, 2)}, "query rows other than 1 or 2"),
    "keys": ({"seq_k": range(1, 99)}, "keys other than 1 to 98"),
    "few": ({"max_seq_q": 4}, "more than 4 query rows"),
    "heads": ({"heads_q": (8, 32)}, "query heads other than 8 or 32"),
    "groups": ({"group_sizes": (1, 4)}, "groups other than of 1 or 4 query heads"),
    "gqa": ({"gqa": False}, "several query heads per kv head"),
    "dims": ({"dim_multiple": 16}, "other than multiples of 16"),
    "equal": ({"equal_dims": True}, "dim_v other than dim_qk"),
    "scales": ({"scales": ("positive",)}, "zero, negative"),
    "fixed scale": ({"scales": ("default", 0.5)}, "other than default, 0.5"),
    "layouts": ({"layouts": ("bshd",)}, "bhsd"),
    "contiguous": ({"contiguous": True}, "dO expanded or transposed"),
    "gaps": ({"gaps": False}, "gaps between rows"),
    "unaligned": ({"unaligned": False}, "pointers and strides that are no multiple of 16 bytes"),
    "values": ({"non_finite": False}, "NaN and infinity in q, k, v and dO"),
    "padding": (
        {"masks": ("causal",)},
        "anything behind a declared length: none of key_lengths, query_lengths, packed",
    ),
    "backward": ({"backward": False}, "all of them: forward only"),
    "dlse": ({"dlse": False}, "a gradient that arrives through LSE"),
    "launch": ({"launch": ()}, "other launch configurations than the default one"),
}


@pytest.mark.parametrize("name", NARROWED)
def test_each_narrower_declaration_is_said(name):
    changed, words = NARROWED[name]
    new = {what for _, what in said(dataclasses.replace(WIDEST, **changed)) - said()}

    assert [what for what in new if words in what]


PROMISED = {
    "gradients": ({"gradients": GRADIENTS - {"dk", "dsink"}}, {"dk", "dsink"}),
    "lse": ({"lse_base": None}, {"LSE: none is returned"}),
    "padding": ({"padding": "undefined"}, {"what is written outside the declared lengths: undefined by contract"}),
    "empty rows": (
        {"empty_row_o": None, "empty_row_lse": None},
        {"O and LSE of rows that see no key, and their delta and dQ: undefined by contract"},
    ),
    "repeats": ({"deterministic": None}, {"the same bits over repeats: measured, never a failure"}),
    "masked loads": ({"masked_loads": "zero"}, {"masked lanes of loads without other=: zero by contract"}),
}


@pytest.mark.parametrize("name", PROMISED)
def test_each_missing_promise_is_said(name):
    changed, words = PROMISED[name]

    assert {what for _, what in said(contract=dataclasses.replace(CONTRACT, **changed)) - said()} == words


@subject(
    supports=Supports(dtypes=("fp32",), heads_q=(8,), also=lambda case: "odd seed" if case.values.seed % 2 else None),
    contract=Contract(lse_base="2"),
    form=Form(block_n=32, lse_base="2"),
    device="cpu",
)
def narrow(p):
    raise AssertionError


@pytest.mark.slow
def test_the_declared_fields_and_three_cases_are_shown():
    found = described("mine.py:narrow", narrow, "cpu")
    text = description_text(found)

    assert {name: found.supports[name] for name in ("dtypes", "heads_q")} == {"dtypes": "('fp32',)", "heads_q": "(8,)"}
    assert found.contract == {"lse_base": "'2'"}
    assert (found.form["block_n"], found.defaults["form"]["exp"]) == ("32", "'ex2'")
    assert found.defaults["supports"]["square"] == "False"
    assert 0.3 < found.refused < 0.6
    assert len(found.drawn) == 3
    lines = [shlex.split(line) for line in text.splitlines() if line.strip().startswith("flashverify replay")]
    assert [line[3:] for line in lines] == [["--subject", "mine.py:narrow", "--device", "cpu"]] * 3
    assert all(narrow.supports.refusal(parse_case(line[2])) is None for line in lines)
    assert "odd seed" in text


def test_a_subject_that_does_not_exist_is_exit_code_2():
    result = CliRunner().invoke(main, ["describe", "no-such-subject"])

    assert result.exit_code == 2
    assert "no-such-subject" in result.output


@pytest.mark.slow
@pytest.mark.thorough
def test_the_command_says_as_json_that_nothing_can_be_drawn(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from flashverify import Supports, subject\n"
        "@subject(supports=Supports(backward=False, also=lambda c: f'never of {c.seq_q} rows'), device='cpu')\n"
        "def mine(p):\n    raise AssertionError\n",
        encoding="utf-8",
    )
    result = CliRunner().invoke(main, ["describe", f"{path}:mine", "--device", "cpu", "--json"])
    found = json.loads(result.output)

    assert result.exit_code == found["exit_code"] == 2
    assert (found["drawn"], found["reasons"]) == ([], ["100% never of 1 rows"])
    assert {"topic": "gradients", "what": "all of them: forward only"} in found["untested"]
