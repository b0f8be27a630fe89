"""Inputs that a kernel keeps, leaves out or reads by another length, and what it rounds between two steps: each is said or explained."""

import dataclasses
import itertools

import pytest
import torch

from flashverify.case.memory.materialize import materialize
from flashverify.case.text import parse_case
from flashverify.diagnosis.code_reading import operand_codes
from flashverify.diagnosis.observe import look
from flashverify.diagnosis.precision.backward import backward
from flashverify.diagnosis.precision.rounding import to_bits, to_dtype
from flashverify.diagnosis.precision.steps import Steps, logits_of
from flashverify.diagnosis.readings.backward.bucket_readings import bucket_formulas
from flashverify.diagnosis.readings.backward.sum_readings import sum_formulas
from flashverify.diagnosis.readings.code_groups import of_groups
from flashverify.diagnosis.readings.devices import CUTS, place_on
from flashverify.diagnosis.readings.elsewhere.values import values_elsewhere
from flashverify.diagnosis.readings.masks.extents import visible_extents
from flashverify.diagnosis.readings.unread import unread_inputs
from flashverify.diagnosis.readings.weights.draws import other_draws
from flashverify.diagnosis.readings.weights.effect import declared_effect
from flashverify.diagnosis.trials import Trials
from tests.diagnosis.explaining import explained
from tests.diagnosis.keeping import a_thing
from tests.diagnosis.planted import Plain, planted

CASE = "fv1 heads_q=2 heads_kv=2 seq_q=5 seq_k=9 dim_qk=16 dim_v=16 dtype=fp32 "
FORWARD = CASE + "backward=no "
TEXTS = [f"{FORWARD}seq_q={n} seq_k={n + 3} seed={n}" for n in (4, 6, 8, 9)]


def asked(subject, texts):
    """Trials of a subject, and the last run."""
    trials = Trials(subject, 300)
    return trials, [trials.scene(parse_case(text)) for text in texts][-1]


def cases(more):
    return [text.replace("seq_q=5 seq_k=9 ", "") + more for text in TEXTS]


@pytest.mark.parametrize(
    ("field", "more", "name"), [("sink", " sink=yes", "sinks"), ("logits", " softcap=2", "softcap")]
)
def test_an_input_of_the_very_first_call_is_no_input(field, more, name):
    subject = a_thing(field, key=lambda _problem: 0)
    first = parse_case(cases(more.replace("=2", "=30"))[0].replace("seed=4", "seed=77"))
    assert not look(subject, first).failures

    found = unread_inputs(*asked(subject, cases(more)))

    assert [each.words.partition(":")[0] for each in found] == [f"O and LSE do not depend on the {name}"]


def test_an_input_that_is_read_wrongly_is_read():
    subject = planted(sinks=lambda _self, sinks: 2 * sinks)

    assert unread_inputs(*asked(subject, cases(" sink=yes"))) == []


class CausalByBlocks(Plain):
    """A block of 16 keys that begins at or before the diagonal is seen as a whole."""

    def see(self, problem):
        if not problem.causal:
            return super().see(problem)
        mask = dataclasses.replace(problem.case.mask, causal=None)
        see = super().see(dataclasses.replace(problem, case=dataclasses.replace(problem.case, mask=mask)))
        i, j = torch.arange(see.shape[2])[:, None], torch.arange(see.shape[3])
        return see & (j // 16 * 16 <= i)


def test_an_input_that_small_cases_alone_do_not_depend_on_is_read():
    assert unread_inputs(*asked(CausalByBlocks(), cases(" causal=top-left"))) == []


def rows_without_keys(self, problem, found):
    gradients = Plain.backward(self, problem, found)
    empty = ~found.saved[5].any(-1)
    share = torch.where(empty, problem.sink.double().view(1, -1, 1).exp() * problem.dlse.double(), 0.0).sum((0, 2))
    return dataclasses.replace(gradients, dsink=(gradients.dsink.double() + share).float())


def by_length(table, length):
    """A table whose rows begin `length` apart, as far as there is memory."""
    flat, (rows, columns) = table.flatten(2), table.shape[2:]
    at = torch.arange(rows)[:, None] * length + torch.arange(columns)
    return flat[..., at.clamp(max=flat.shape[2] - 1)]


def of_the_longest(self, problem, queries, keys):
    return 9 - 5 if problem.case.mask.aligned_at_end else 0


def entries_one_short(self, table):
    heads, count = table.shape
    return table.flatten()[torch.arange(heads)[:, None] * (count - 1) + torch.arange(count)]


class ClippedLate(Plain):
    """A distance one farther than the reach, before the row, reads the last distance of the head before."""

    def forward(self, problem):
        self.of_distance = problem.distance_buckets.long()
        return Plain.forward(self, problem)

    def table(self, table):
        spread = table[:, self.of_distance]
        return torch.cat([spread[..., -1:].roll(1, 0), spread], -1)

    def buckets(self, problem):
        reach = len(problem.distance_buckets) // 2
        return self.distance(problem).clamp(-reach - 1, reach) + reach + 1


def of_the_sequence_before(which):
    def changed(self, problem):
        lengths = getattr(problem, which)
        before = torch.cat([lengths[:1], lengths[:-1]])
        return Plain.forward(self, dataclasses.replace(problem, **{which: before}))

    return {"forward": changed}


WRONG = [
    (
        "bits-of-first-words",
        FORWARD.replace("seq_k=9", "seq_k=70") + "bitmap=128,3",
        {"pattern": lambda s, p, x: x[..., torch.arange(x.shape[-1]) % 64]},
    ),
    ("relative-bias-rows-by-another-length", FORWARD + "relative_bias=8,5,both", {"table": entries_one_short}),
    (
        "relative-bias-clipped-late",
        FORWARD.replace("seq_q=5", "seq_q=9") + "relative_bias=8,5,both",
        {name: getattr(ClippedLate, name) for name in ("forward", "table", "buckets")},
    ),
    ("key-lengths-of-sequence-before", FORWARD + "batch=3 klen=4,9,6", of_the_sequence_before("key_lengths")),
    ("query-lengths-of-sequence-before", FORWARD + "batch=3 qlen=2,5,4", of_the_sequence_before("query_lengths")),
    ("empty-rows-in-dsink", CASE + "causal=bottom-right klen=2 sink=yes dlse=yes", {"backward": rows_without_keys}),
    ("diagonal-of-the-longest", FORWARD + "batch=2 causal=bottom-right klen=9,7", {"shift": of_the_longest}),
    ("bitmap-rows-by-another-length", FORWARD + "klen=6 bitmap=128,3", {"pattern": lambda s, p, x: by_length(x, 6)}),
    (
        "blocks-rows-by-another-length",
        FORWARD.replace("seq_q=5 seq_k=9", "seq_q=40 seq_k=56") + "klen=20 blocks=16,16,128,4",
        {"live": lambda s, p, x: by_length(x, 2)},
    ),
    ("bias-rows-by-another-length", FORWARD + "klen=6 bias=shared", {"add_bias": lambda s, z, x: z + by_length(x, 6)}),
]


@pytest.mark.parametrize(("name", "text", "defect"), [pytest.param(*x, id=x[0]) for x in WRONG])
def test_what_is_wrong_is_what_its_semantics_expects(name, text, defect):
    scene = look(planted(**defect), parse_case(text))

    assert scene.failures, "the planted defect does not show"
    assert explained(name, scene)


class WithoutClippedPairs(Plain):
    def table_gradient(self, ds, buckets, count):
        far = torch.arange(ds.shape[-1]) - torch.arange(ds.shape[-2])[:, None]
        return super().table_gradient(torch.where(far.abs() > 5, 0.0, ds), buckets, count)


def test_pairs_that_a_table_clips_are_a_place():
    scene = look(WithoutClippedPairs(), parse_case(CASE.replace("seq_q=5", "seq_q=9") + "relative_bias=8,5"))
    words = [each.words(False) for each in sum_formulas(scene, "drelative_bias", lambda: True)]

    assert "drelative_bias leaves out what it sums at keys farther from the row than the table reaches" in words


def test_entries_of_other_distances_are_those_of_a_loop():
    scene = look(Plain(), parse_case(CASE + "relative_bias=8,5"))
    formula = next(each for each in bucket_formulas(scene, "drelative_bias") if "of the other sign" in each.how)
    given = formula.alternative(scene).inputs.relative_buckets
    buckets = scene.problem.distance_buckets

    for i, j in itertools.product(range(5), range(9)):
        assert given[0, 0, i, j] == buckets[min(max(i - j, -5), 5) + 5]


def test_a_product_is_rounded_between_parts_of_its_channels():
    scene = look(Plain(), parse_case(FORWARD + "scale=0.5"))
    narrow = to_dtype("bf16")
    found = logits_of(scene.inputs, Steps(part_product=narrow, channels=8))
    q, k = scene.inputs.q.double(), scene.inputs.k.double()
    parts = [q[..., at : at + 8] @ k[..., at : at + 8].mT for at in (0, 8)]

    assert torch.equal(found, (narrow(parts[0]) + parts[1]) * 0.5)
    assert not torch.equal(found, (parts[0] + parts[1]) * 0.5)


def test_dropout_may_scale_an_operand_in_few_bits():
    scene = look(Plain(), parse_case(CASE + "dropout=0.25"))
    plain = backward(scene, Steps(), frozenset({"dq"}))["dq"]
    exact = backward(scene, Steps(scaled_do=lambda x: x), frozenset({"dq"}))["dq"]
    rounded = backward(scene, Steps(scaled_do=to_dtype("bf16")), frozenset({"dq"}))["dq"]

    assert torch.allclose(exact, plain, rtol=1e-12)
    assert 1e-5 < (rounded - plain).norm() / plain.norm() < 1e-2


@pytest.mark.parametrize(("count", "value"), [(12, 1 + 2.0**-11), (9, -1 - 2.0**-8)])
def test_numbers_of_so_many_bits_stay(count, value):
    x = torch.tensor([value], dtype=torch.float64)

    assert torch.equal(to_bits(count)(x), x)
    assert not torch.equal(to_bits(count - 1)(x), x)


def test_groups_of_scales_are_counted_in_other_ways():
    problem, _ = materialize(parse_case(FORWARD + "quantised=int8/block2/varied klen=5"), "cpu")
    reading = operand_codes(problem, "k")
    scales = reading.groups[0, 0]
    numbers = {
        "scale of the last whole group for the keys behind it": [0, 0, 1, 1, 2, 2, 3, 3, 3],
        "scale of the last group that the sequence's keys fill for the keys behind it": [0, 0, 1, 1, 1, 1, 1, 1, 1],
        "scale of the groups in reverse order": [4, 4, 3, 3, 2, 2, 1, 1, 0],
        "scale of the nearest group, its number rounded": [0, 1, 1, 2, 2, 3, 3, 4, 4],
    }

    for words, expected in numbers.items():
        assert torch.equal(of_groups("scale")[words](reading, reading)[0, 0, :, 0], scales[expected]), words


def test_the_context_of_a_chunk_is_a_set_of_keys():
    scene = look(Plain(), parse_case(FORWARD + "causal=bottom-right"))
    wrong = torch.ones(1, 2, 5, 9, dtype=torch.bool)
    found = {each.words: each.where(scene) for each in visible_extents(scene, wrong)}
    context = found["keys of the context (all but the last ones, as many as there are rows)"]

    for i, j in itertools.product(range(5), range(9)):
        assert context[0, 0, i, j] == (j < 4)


def test_a_place_on_another_device_is_that_of_the_same_number():
    devices = dict(CUTS)["in zigzag"](8, 2)

    assert devices.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]
    assert place_on(devices, torch.tensor(1), 2).tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
    assert place_on(devices, -devices, 2).tolist() == [0, 1, 0, 1, 6, 7, 6, 7]
    assert place_on(torch.tensor([0, 1, 1, 2]), torch.tensor(1), 3).tolist() == [0, 1, 2, 0]


def test_draws_are_those_of_the_row_from_the_end():
    scene = look(Plain(), parse_case(FORWARD + "dropout=0.5"))
    effect = declared_effect(scene)
    factor = dict(other_draws())["the draws of the row's number from the end of the sequence"](effect)

    assert torch.equal(factor > 0, scene.inputs.keep.bool().flip(2).expand_as(factor))


def test_rows_of_zeros_are_of_no_other_place():
    def o(self, o, z, v, lse):
        more = o.shape[2] - v.shape[2]
        first = torch.arange(o.shape[2])[:, None] - more  # rows before it see no key
        return torch.where((first >= 0) & (first < 3) & (more > 16), 0.0, o)

    subject = planted(output=o)
    trials, scene = asked(subject, [FORWARD.replace("seq_q=5", "seq_q=30") + "causal=bottom-right"])

    assert "o" in scene.failures
    assert values_elsewhere(trials, scene, "o") == ()
