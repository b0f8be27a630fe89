"""A defect that shows under a condition, or at a place, is named with it."""

from dataclasses import replace

import pytest
import torch

from flashverify.case.text import parse_case
from flashverify.diagnosis.attribution import attributed
from flashverify.diagnosis.description import described
from flashverify.diagnosis.trials import Trials
from flashverify.judge.record import Diagnosis
from flashverify.subjects.interface import Forward
from tests.diagnosis.conditional import gradient_where, group, products, rows_where, size, when, where
from tests.diagnosis.planted import LOG2E, Plain, planted
from tests.diagnosis.test_diagnosis import CASE, FORWARD, first_failure, named

CAUSAL = FORWARD + "causal=top-left "
IGNORED = {"causal": lambda s, i, j: j >= 0}
ONE_MORE = {"causal": lambda s, i, j: j <= i + 1}
BASE_2 = {"lse": lambda s, lse, without_sink: lse * LOG2E}
LOG2E_TWICE = {"scale": lambda s, p: p.scale * LOG2E}
LAST_KEY = {"keys": lambda s, n: n - 1}
TWICE = {"dk_factor": lambda s, p: 2.0}
UNSCALED = {"dk_factor": lambda s, p: 1 / p.scale}


def wide(p):
    return p.q.shape[3] == 128


CASES = [
    (
        "causal-ignored",
        ["seq_q > seq_k"],
        size(CAUSAL, seq_q=9),
        when(lambda p: p.q.shape[2] > p.k.shape[2], **IGNORED),
    ),
    ("causal-ignored", ["seq_k < 40"], CAUSAL, when(lambda p: p.k.shape[2] < 40, **IGNORED)),
    ("causal-one-key-more", ["dim_qk == 128"], size(CAUSAL, dim_qk=128, dim_v=128), when(wide, **ONE_MORE)),
    ("last-key-missing", ["seq_k % 64 != 0"], FORWARD, when(lambda p: p.k.shape[2] % 64 != 0, **LAST_KEY)),
    ("log2e-twice", ["sequences >= 2"], FORWARD + "batch=2", when(lambda p: p.q.shape[0] > 1, **LOG2E_TWICE)),
    ("lse-base-2", ["group >= 2"], FORWARD + "heads_q=2", when(lambda p: group(p) > 1, **BASE_2)),
    ("lse-base-2", ["window == yes"], FORWARD + "window=2,1", when(lambda p: p.window is not None, **BASE_2)),
    (
        "log2e-twice",
        ["dtype == bf16"],
        size(FORWARD, dtype="bf16"),
        when(lambda p: p.q.dtype == torch.bfloat16, **LOG2E_TWICE),
    ),
    ("gradient-twice", ["room_q >= 64"], size(CASE, seq_q=64), when(lambda p: p.q.shape[2] >= 64, **TWICE)),
    (
        "lse-base-2",
        ["dim_qk < 65", "dim_qk >= 33"],
        size(FORWARD, dim_qk=40),
        when(lambda p: 32 < p.q.shape[3] <= 64, **BASE_2),
    ),
    ("gradient-twice", ["dlse == yes"], CASE + "dlse=yes", when(lambda p: p.dlse is not None, **TWICE)),
    ("log2e-twice", ["gap >= 1"], FORWARD + "gap=8", when(lambda p: not p.q.is_contiguous(), **LOG2E_TWICE)),
    (
        "lse-base-2",
        ["causal != no", "sink == yes"],
        CAUSAL + "sink=yes",
        when(lambda p: p.sink is not None and p.causal is not None, **BASE_2),
    ),
    (
        "causal-one-key-more",
        ["member == 0", "seq_q >= 16"],
        size(CAUSAL, seq_q=17, seq_k=20) + " heads_q=2",
        where(lambda p, b, h, i, j: (h % group(p) == 0) & torch.tensor(p.q.shape[2] >= 16), **ONE_MORE),
    ),
    (
        "causal-ignored",
        ["key_tile[64] == last"],
        CAUSAL,
        where(lambda p, b, h, i, j: j >= (p.k.shape[2] - 1) // 64 * 64, **IGNORED),
    ),
    (
        "first-key-missing",
        ["rows > keys"],
        FORWARD + "batch=2 klen=7,3",
        where(
            lambda p, b, h, i, j: (
                (torch.tensor([p.k.shape[2]] * len(b)) if p.key_lengths is None else p.key_lengths.long()).view(
                    -1, 1, 1, 1
                )
                < p.q.shape[2]
            ),
            drop_keys=lambda s, see: torch.cat([see[..., :1] & False, see[..., 1:]], -1),
        ),
    ),
    (
        "lse-base-2",
        ["row_tile[64] == last"],
        FORWARD,
        rows_where(lambda p, b, h, i: i >= (p.q.shape[2] - 1) // 64 * 64, **BASE_2),
    ),
    (
        "log2e-twice",
        ["head >= 1"],
        FORWARD + "heads_q=2 heads_kv=2",
        rows_where(lambda p, b, h, i: h >= 1, **LOG2E_TWICE),
    ),
    (
        "gradient-without-scale",
        ["key_tile[32] == last"],
        CASE,
        gradient_where(lambda b, h, n, c: n >= (n.numel() - 1) // 32 * 32, "dk", **UNSCALED),
    ),
    (
        "gradient-twice",
        ["channel >= 64"],
        size(CASE, dim_qk=128, dim_v=128),
        gradient_where(lambda b, h, n, c: c >= 64, "dq", dq_factor=lambda s, p: 2.0),
    ),
]


# Another relation or tile of a feature or place that is kept.
REPEATED = {
    "seq_k < 40", "dlse == yes", "seq_q > seq_k", "key_tile[32] == last", "sequences >= 2", "window == yes", "gap >= 1",
    "room_q >= 64", "head >= 1", "dim_qk == 128", "dtype == bf16", "sink == yes", "key_tile[64] == last", "rows > keys", "channel >= 64", "member == 0", "seq_k % 64 != 0",
}  # fmt: skip


def marked(name, conditions, *rest):
    marks = [] if REPEATED.isdisjoint(conditions) else [pytest.mark.thorough]
    return pytest.param(name, conditions, *rest, id=f"{name}-{'-'.join(conditions)}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "conditions", "text", "subject"), [marked(*x) for x in CASES])
def test_a_defect_under_a_condition_is_named_with_it(name, conditions, text, subject):
    found = named(subject, text)
    assert (found.name, list(found.conditions)) == (name, conditions), found
    assert ", only " in found.sentence
    assert "further cases" in found.evidence


@pytest.mark.slow
def test_a_condition_on_values_is_found():
    subject = when(lambda p: float(products(p).abs().max()) > 50, **LOG2E_TWICE)
    found = named(subject, FORWARD + "regime=logits-1e2")
    assert found.name == "log2e-twice"
    (condition,) = found.conditions
    feature, comparison, value = condition.split()
    assert (feature, comparison) == ("max_product", ">=")
    assert 25 <= float(value) <= 75


@pytest.mark.thorough
def test_two_defects_under_two_conditions_are_not_taken_for_one():
    """The second one shows on most of the cases on which the first one does."""
    second = {"lse": lambda s, lse, without_sink: lse + 0.5}
    subject = when(lambda p: p.q.shape[2] > 8, **ONE_MORE, **second)
    assert named(subject, size(CAUSAL, seq_q=9)).name == ""


def noisy(self, o, z, v, lse):
    return o + 0.01 * torch.sin(1e3 * o)


@pytest.mark.slow
@pytest.mark.thorough
def test_noise_under_a_condition_is_described_by_it():
    found = named(when(lambda p: p.q.shape[2] > p.k.shape[2], output=noisy), size(FORWARD, seq_q=9))
    assert found.name == ""
    assert found.conditions == ("seq_q > seq_k",)
    assert "only where Sq > Sk" in found.sentence


@pytest.mark.thorough
def test_noise_at_a_place_is_described_by_it():
    found = named(rows_where(lambda p, b, h, i: i >= 64, output=noisy), size(FORWARD, seq_q=65))
    assert found.name == ""
    assert "row_tile[64] == later" in found.conditions


@pytest.mark.slow
def test_a_diagnosis_with_conditions_accounts_for_failures_under_them_only():
    known = Diagnosis("causal-ignored", conditions=("seq_q > seq_k",))
    everywhere = planted(**IGNORED)
    for text, answer in ((size(CAUSAL, seq_q=12, seq_k=10, dtype="bf16"), True), (CAUSAL, False)):
        case = parse_case(text)
        assert attributed(everywhere, case, first_failure(everywhere, case), known) is answer


@pytest.mark.slow
def test_a_place_is_asked_of_attribution_too():
    subject = where(lambda p, b, h, i, j: h % group(p) >= 1, **IGNORED)
    case = parse_case(size(CAUSAL, seq_q=20, seq_k=30) + " heads_q=4 heads_kv=2")
    known = Diagnosis("causal-ignored", conditions=("member >= 1",))
    assert attributed(subject, case, first_failure(subject, case), known)
    everywhere = planted(**IGNORED)
    assert not attributed(everywhere, case, first_failure(everywhere, case), known)


class Launched(Plain):
    """Right with one of two tiles."""

    supports = replace(Plain.supports, launch=(("tile", (16, 32)),))

    def forward(self, problem):
        right = Plain.forward(self, problem)
        if dict(problem.case.launch).get("tile") == 32:
            return right
        return Forward(noisy(self, right.o, None, None, None), right.lse, right.saved)


def test_a_launch_parameter_that_makes_it_right_is_described():
    trials = Trials(Launched(), 300.0)
    sentence, conditions = described(trials, trials.scene(parse_case(FORWARD)), "o")

    assert "is right with tile = 32" in sentence or "launch.tile" in " ".join(map(str, conditions))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_launch_parameter_that_makes_it_right_is_said():
    found = named(Launched(), FORWARD)
    assert found.name == ""
    assert "is right with tile = 32" in found.sentence or "launch.tile" in " ".join(found.conditions)


@pytest.mark.slow
def test_what_fp32_does_right_is_said():
    def rounded(self, o, z, v, lse):
        return o if v.abs().max() > 1e30 or self.exact else o * (1 + 0.02 * torch.sin(1e3 * o))

    class Rounded(type(planted(output=rounded))):
        def forward(self, problem):
            self.exact = problem.q.dtype == torch.float32
            return super().forward(problem)

    found = named(Rounded(), size(FORWARD, dtype="fp16"))
    assert found.name == ""
    assert "right in fp32" in found.sentence


@pytest.mark.slow
def test_a_low_precision_failure_is_diagnosed_in_fp32_where_it_shows_there():
    found = named(planted(**ONE_MORE), size(CAUSAL, dtype="bf16"))
    assert found.name == "causal-one-key-more"
    assert found.conditions == ()
