"""Wrong semantics of what is rounded to a multiple, of hidden pairs in the row sum alone, and of the rest of a shared K."""

import dataclasses
import math

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.claims import Answer, Claim
from flashverify.diagnosis.hypotheses.lengths_of_others import LENGTHS_OF_OTHERS
from flashverify.diagnosis.hypotheses.rescaling import RESCALING
from flashverify.diagnosis.hypotheses.shared_kv import SHARED_KV
from flashverify.diagnosis.observe import look
from flashverify.subjects import load_subject
from tests.diagnosis.base_defects import FORWARD, TILES
from tests.diagnosis.mask_defects import banded, given
from tests.diagnosis.online import online, with_logits
from tests.diagnosis.planted import planted
from tests.diagnosis.test_bases import explained

MANY = FORWARD + "batch=2 heads_q=4 heads_kv=2 "
GROWING = TILES + "scale=0.2"
TALL = FORWARD.replace("seq_q=5 seq_k=7", "seq_q=37 seq_k=75")


def with_room(size):
    """The LSE of a head begins at a multiple of `size` rows, and is read as if it did not."""

    def lse(self, lse, _):
        rows = lse.shape[2]
        room = -(-rows // size) * size
        buffer = torch.full((*lse.shape[:2], room), 7.0, dtype=lse.dtype)
        buffer[:, :, :rows] = lse
        return buffer.flatten()[: lse.numel()].view(lse.shape)

    return with_logits(lse=lse)


def in_the_sum(logit):
    """Hidden pairs are in the row sum, with a logit of their own, and not in O."""

    def changed(self, z):
        return torch.where(z == -torch.inf, logit, z).logsumexp(-1)

    def output(self, o, z, v, lse):
        self.whole = changed(self, z)
        return o * (lse - self.whole).exp().unsqueeze(-1)

    return with_logits(output=output, lse=lambda self, lse, _: self.whole)


def edge(i, j, left, right):
    """Tiles of 16 by 16: the one with the first key of the tile's last row is not masked, unless it is cut by the last key."""
    tile = i // 16 == i.mT // 16
    last = torch.where(tile, i.mT, 0).amax(-1, keepdim=True) - left
    return (j >= i - left) | ((j >= last // 16 * 16) & (j < last) & (j < 75 // 16 * 16))


DEFECTS = [
    ("lse-rows-of-whole-tiles", MANY, with_room(16)),
    ("key-lengths-rounded-up", MANY + "klen=3,6 padding=dirt", given(key_lengths=lambda p: -(-p.key_lengths // 4) * 4)),
    ("key-lengths-rounded-down", MANY + "klen=3,6", given(key_lengths=lambda p: p.key_lengths // 2 * 2)),
    ("hidden-pairs-with-logit-zero", FORWARD + "causal=top-left", in_the_sum(0.0)),
    ("softcap-after-mask", FORWARD + "causal=top-left softcap=1", in_the_sum(-1.0)),
    ("edge-tile-unmasked", TALL + "window=20,*", banded(edge)),
    (
        "rescaling-missed-by-growth",
        GROWING,
        online(lambda step, steps, alpha, growth: (torch.where(growth < 0.5 * math.log(2), 1.0, alpha),) * 2),
    ),
]


@pytest.mark.parametrize(
    ("name", "text", "defect"), [pytest.param(*x, id=f"{x[0]}-{n}") for n, x in enumerate(DEFECTS)]
)
def test_a_planted_defect_is_what_its_semantics_expects(name, text, defect):
    scene = look(planted(**defect), parse_case(text))

    assert scene.failing(), "the planted defect does not show"
    assert explained(name, scene)


def test_a_limit_of_growth_is_left_out_where_a_right_row_refutes_it_and_kept_where_nothing_fails():
    by_growth = next(each for each in RESCALING if each.name == "rescaling-missed-by-growth")
    case = parse_case(GROWING)
    defect = online(lambda step, steps, alpha, growth: (torch.where(growth < 0.5 * math.log(2), 1.0, alpha),) * 2)

    wrong, right = (list(by_growth.build(look(planted(**each), case))) for each in (defect, {}))

    assert 0 < len(wrong) < len(right)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("shared-rest-of-first-sequence", lambda x: x[:1].expand_as(x)),
        ("shared-rest-of-next-sequence", lambda x: x.roll(-1, 0)),
        ("shared-rest-of-first-key", lambda x: x[:, :, :1].expand_as(x)),
        ("shared-rest-of-next-key", lambda x: x.roll(-1, 2)),
    ],
)
def test_the_rest_of_a_shared_k_is_that_of_another_place(name, changed):
    scene = look(
        load_subject("bundled-latent"), parse_case("fv1 batch=2 seq_k=3 dim_qk=24 dim_v=16 kv=shared backward=no")
    )
    semantics = next(each for each in SHARED_KV if each.name == name)

    (found,) = semantics.build(scene)

    assert torch.equal(found.inputs.k[..., :16], scene.inputs.k[..., :16].double())
    assert torch.equal(found.inputs.k[..., 16:], changed(scene.inputs.k[..., 16:].double()))


def test_a_case_with_one_sequence_has_no_other_one_to_read_the_rest_of():
    scene = look(load_subject("bundled-latent"), parse_case("fv1 seq_k=3 dim_qk=24 dim_v=16 kv=shared backward=no"))

    assert not list(next(s for s in SHARED_KV if s.name == "shared-rest-of-first-sequence").build(scene))


def test_one_multiple_of_lengths_explains_cases_on_which_several_come_to_the_same():
    in_fours = planted(**given(key_lengths=lambda p: (-(-p.key_lengths // 4) * 4).clamp(max=p.case.seq_k)))
    semantics = next(each for each in LENGTHS_OF_OTHERS if each.name == "key-lengths-rounded-up")
    claim = Claim(dataclasses.replace(semantics, one_way=True))
    texts = [f"fv1 seq_q=3 seq_k={k} dim_qk=8 dim_v=8 klen={n} backward=no" for k, n in ((2, 1), (9, 5), (20, 13))]

    assert [claim.answer(look(in_fours, parse_case(text))) for text in texts] == [Answer.CLEAR] * 3
    assert claim.detail == "of 4"
