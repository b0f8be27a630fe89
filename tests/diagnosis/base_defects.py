"""Defects of the online softmax, the LSE, the denominator, masks, operands and sums, planted in `planted.Plain`."""

import dataclasses
import math

import torch

from flashverify.subjects.interface import Gradients
from tests.diagnosis.online import online, reads, with_logits
from tests.diagnosis.planted import LOG2E, Plain

CASE = "fv1 seq_q=5 seq_k=7 dim_qk=8 dim_v=8 dtype=fp32 "
FORWARD = CASE + "backward=no "
TILES = FORWARD.replace("seq_k=7", "seq_k=60")
LATER = TILES + "regime=ascending "
GRADIENTS = CASE.replace("seq_q=5", "seq_q=37")
MANY = CASE + "batch=2 heads_q=4 heads_kv=2 "


def mixed(top, log_sum):
    def lse(self, lse, without_sink):
        m = self.z.amax(-1)
        return top * m + log_sum * (lse - m)

    return with_logits(lse=lse)


def in_lse(change):
    """LSE as a function of the largest logit and the LSE, with O to match."""

    def output(self, o, z, v, lse):
        m = z.amax(-1)
        return o * (lse - change(self, m, lse)).exp().unsqueeze(-1)

    return with_logits(output=output, lse=lambda self, lse, _: change(self, self.z.amax(-1), lse))


def scaled(subject, problem):
    subject.unscaled = 1 / problem.scale
    return problem.scale


def from_start(start):
    def output(self, o, z, v, lse):
        m = z.amax(-1, keepdim=True).clamp(min=start)
        p = (z - m).float().exp().double()
        p = torch.where(p < 2.0**-126, 0.0, p)
        total = p.sum(-1, keepdim=True)
        self.started = (m + torch.where(total == 0, 0.0, total.log())).squeeze(-1)
        return p @ v / torch.where(total == 0, 1.0, total)

    return {"output": output, "lse": lambda self, lse, _: self.started}


def weighed(change):
    """O and LSE from changed logits."""

    def output(self, o, z, v, lse):
        changed = change(self, z)
        self.changed = changed.logsumexp(-1)
        return (changed - self.changed.unsqueeze(-1)).exp() @ v

    return {"output": output, "lse": lambda self, lse, _: self.changed}


def hidden(logit):
    """Hidden pairs take part with another logit, a function of the mask and the logits, in the forward and the backward."""

    class Hidden(Plain):
        def forward(self, problem):
            result = super().forward(problem)
            q, k, v, raw, z, see, keep, group = result.saved
            full = torch.where(see, z, logit(see, raw, z))
            lse = full.logsumexp(-1)
            o = (full - lse.unsqueeze(-1)).exp() @ v
            saved = (q, k, v, raw, full, torch.ones_like(see), keep, group)
            return dataclasses.replace(result, o=o.to(result.o.dtype), lse=lse.float(), saved=saved)

    return Hidden


def dropped_prefix(size):
    def drop_keys(self, see):
        prefix = see.shape[3] - see.shape[2]
        key = torch.arange(see.shape[3])
        return see & ~((key >= prefix // size * size) & (key < prefix))

    return {"drop_keys": drop_keys}


def only_keys(kept):
    """O and dQ are summed over some keys alone."""

    def output(self, o, z, v, lse):
        return ((z - lse.unsqueeze(-1)).exp() * kept(self, torch.arange(z.shape[-1]), z.shape[-1])) @ v

    return {"output": output}


def gradients(change):
    """A change of the gradients, given the problem."""

    def backward(self, problem, forward):
        return dataclasses.replace(g := Plain.backward(self, problem, forward), **change(self, problem, forward, g))

    return {"backward": backward}


def of_rows(kept):
    """DK and dV summed over some rows alone."""

    def backward(self, problem, forward):
        rows = kept(torch.arange(problem.case.seq_q), problem.case.seq_q)
        dlse = None if problem.dlse is None else problem.dlse * rows
        part = dataclasses.replace(problem, do=problem.do * rows.view(-1, 1), dlse=dlse)
        right, some = Plain.backward(self, problem, forward), Plain.backward(self, part, forward)
        return Gradients(right.dq, some.dk, some.dv, right.delta)

    return {"backward": backward}


def tail_at_zero(self, o, z, v, lse):
    o = o.clone()
    o[:, :, o.shape[2] // 16 * 16 :] = 0.0
    return o


class FirstLengths(Plain):
    def see(self, problem):
        first = problem.key_lengths[:1].expand_as(problem.key_lengths)
        return super().see(dataclasses.replace(problem, key_lengths=first))


DEFECTS = [
    ("scale-without-sign", FORWARD + "scale=-0.4", {"scale": lambda self, problem: abs(problem.scale)}),
    ("lse-mixed-bases", FORWARD, mixed(LOG2E, 1.0)),
    ("lse-mixed-bases", FORWARD, mixed(1.0, LOG2E)),
    ("lse-without-maximum", FORWARD, mixed(0.0, 1.0)),
    ("lse-without-logarithm", FORWARD, with_logits(lse=lambda s, x, _: s.z.amax(-1) + (x - s.z.amax(-1)).exp())),
    (
        "lse-maximum-unscaled",
        FORWARD,
        with_logits(lse=lambda s, x, _: x + s.z.amax(-1) * (s.unscaled - 1), scale=lambda s, p: scaled(s, p)),
    ),
    ("rescaling-missing", LATER, online(lambda step, steps, alpha, growth: (alpha**0, alpha**0))),
    ("alpha-twice", LATER, online(lambda step, steps, alpha, growth: (alpha**2, alpha))),
    ("row-sum-twice", LATER, online(lambda step, steps, alpha, growth: (alpha, alpha**2))),
    (
        "alpha-missed-in-some-tiles",
        LATER,
        online(lambda step, steps, alpha, growth: (alpha ** (step < steps - 1), alpha)),
    ),
    ("rescaling-missed-in-some-tiles", TILES, online(lambda step, steps, alpha, growth: (alpha ** (step != 1),) * 2)),
    (
        "rescaling-missed-by-growth",
        TILES + "regime=logits-1e2",
        online(lambda step, steps, alpha, growth: (torch.where(growth < 8 * math.log(2), 1.0, alpha),) * 2),
    ),
    ("maximum-from-a-number", FORWARD + "regime=negative", from_start(-20.0)),
    ("logits-clamped", FORWARD + "regime=logits-1e2", weighed(lambda s, z: z.clamp(max=50.0))),
    (
        "exponents-clamped",
        FORWARD + "regime=logits-1e2",
        weighed(lambda s, z: torch.maximum(z, z.amax(-1, keepdim=True) - 8)),
    ),
    ("sink-not-asked-for", FORWARD, in_lse(lambda s, m, lse: torch.logaddexp(lse, torch.zeros_like(lse)))),
    ("row-sum-plus-one", FORWARD, in_lse(lambda s, m, lse: torch.logaddexp(lse, m))),
    ("row-sum-plus-epsilon", FORWARD, in_lse(lambda s, m, lse: torch.logaddexp(lse, m + math.log(1e-3)))),
    (
        "padded-keys-weigh-one",
        FORWARD,
        in_lse(lambda s, m, lse: torch.logaddexp(lse, m + (math.log(n) if (n := -s.z.shape[-1] % 16) else -math.inf))),
    ),
    (
        "normalised-by-rounded-lse",
        FORWARD + "regime=logits-1e4",
        {"output": lambda s, o, z, v, lse: o * (lse - lse.float().double()).exp().unsqueeze(-1)},
    ),
    ("hidden-pairs-with-logit-zero", CASE + "causal=top-left", hidden(lambda see, raw, z: torch.zeros_like(raw))),
    (
        "hidden-pairs-weigh-one",
        CASE + "causal=top-left",
        hidden(lambda see, raw, z: z.amax(-1, keepdim=True).expand_as(z)),
    ),
    (
        "hidden-pairs-with-a-number",
        CASE + "causal=top-left regime=logits-1e4",
        hidden(lambda see, raw, z: raw - 1e4),
    ),
    ("causal-inverted", CASE + "causal=top-left", {"causal": lambda s, i, j: j > i}),
    ("cached-prefix-tail-dropped", TILES, dropped_prefix(16)),
    (
        "cached-prefix-ignored",
        TILES,
        {
            "drop_keys": lambda s, see: (
                see.triu(see.shape[3] - see.shape[2])
                | (torch.arange(see.shape[3]) >= see.shape[3] - see.shape[2]) & see
            )
        },
    ),
    ("backward-k-of-next-head", MANY, reads(k=lambda k, group: k.roll(-group, 1))),
    ("backward-q-of-first-head", MANY, reads(q=lambda q, _: q[:, :1].expand_as(q))),
    ("backward-do-of-first-sequence", MANY, reads(do=lambda do: do[:1].expand_as(do))),
    ("backward-v-of-next-sequence", MANY, reads(v=lambda v, _: v.roll(-1, 0))),
    ("only-last-key-tile", TILES, only_keys(lambda s, j, n: j >= (n - 1) // 16 * 16)),
    ("only-first-key-tile", TILES, only_keys(lambda s, j, n: j < 16)),
    ("only-last-row-tile", GRADIENTS, of_rows(lambda i, n: i >= (n - 1) // 16 * 16)),
    ("tail-rows-skipped", GRADIENTS, of_rows(lambda i, n: i < n // 16 * 16)),
    ("tail-rows-not-computed", FORWARD.replace("seq_q=5", "seq_q=37"), {"output": tail_at_zero}),
    (
        "tail-keys-not-computed",
        GRADIENTS.replace("seq_k=7", "seq_k=23"),
        gradients(
            lambda s, p, f, g: {
                name: getattr(g, name) * (torch.arange(p.case.seq_k) < p.case.seq_k // 16 * 16).view(-1, 1)
                for name in ("dk", "dv")
            }
        ),
    ),
    ("key-lengths-of-first-sequence", MANY + "klen=3,6 backward=no padding=dirt", FirstLengths),
    ("bias-scaled", FORWARD + "bias=full", {"add_bias": lambda s, z, b: z + b / math.sqrt(8)}),
    (
        "softcap-before-scale",
        FORWARD + "softcap=1 scale=0.25",
        {"cap": lambda s, z, cap: 0.25 * cap * torch.tanh(4 * z / cap)},
    ),
    (
        "softcap-in-another-base",
        FORWARD + "softcap=1",
        {"cap": lambda s, z, cap: cap / LOG2E * torch.tanh(z * LOG2E / cap)},
    ),
    ("bias-gradient-with-ln2", CASE + "bias=full", gradients(lambda s, p, f, g: {"dbias": g.dbias / LOG2E})),
]
