"""Defects of attention that is spread over ranks."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["RING"]

RING = (
    Mutant(
        name="a_rank_merges_in_another_base",
        file="ring/passes.py",
        before="o_part, lse_part = found.o, found.lse_natural()",
        after="o_part, lse_part = found.o, found.lse2 if ring.rank else found.lse_natural()",
        outputs=("o", "lse"),
        modelled_on="flashinfer-ai/flashinfer#4485: states of one base merged with states of another",
        subject="bundled-ring",
    ),
    Mutant(
        name="last_step_of_the_ring_left_out",
        file="ring/passes.py",
        before="begun: set[int] = set()\n    held = [k, v]\n    for step in range(ring.ranks):",
        after="begun: set[int] = set()\n    held = [k, v]\n    for step in range(ring.ranks - 1):",
        outputs=("o", "lse"),
        modelled_on="a loop over steps that counts exchanges, of which there is one less than there are shards",
        subject="bundled-ring",
    ),
    Mutant(
        name="diagonal_rounded_toward_zero",
        file="ring/sharding.py",
        before="right = None if high is None else (high + shift) // step",
        after="right = None if high is None else int((high + shift) / step)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="striped attention, whose mask leaves out the diagonal where the keys come from a later rank",
        subject="bundled-ring",
        needs=("causal",),
    ),
    Mutant(
        name="own_rows_taken_for_those_of_the_first_rank",
        file="ring/sharding.py",
        before="step, shift = rows.step, rows.start - keys.start",
        after="step, shift = rows.step, -keys.start",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="pytorch/pytorch context parallel: the causal offset of a rank's rows left out",
        subject="bundled-ring",
        needs=("causal",),
    ),
    Mutant(
        name="values_of_the_step_before",
        file="ring/exchange.py",
        before="return [x.to(self._device) for x in self._received]",
        after="stale = [y if y.shape == x.shape else x for x, y in zip(self._received[1:], self._sent[1:], strict=True)]\n"
        "        return [x.to(self._device) for x in (self._received[0], *stale)]",
        outputs=("o", "dq", "dk", "dv"),
        modelled_on="two buffers that take turns, of which one is not exchanged: keys of one step with values of another",
        subject="bundled-ring",
    ),
    Mutant(
        name="gradients_stop_one_rank_short",
        file="ring/passes.py",
        before="gradients = Exchange(ring, gradients, owner).wait()",
        after="gradients = Exchange(ring, gradients, owner).wait() if ahead is not None else gradients",
        outputs=("dk", "dv"),
        modelled_on="zhuzilin/ring-flash-attention: dK and dV need one more step than K and V to come home",
        subject="bundled-ring",
        needs=("backward",),
    ),
    Mutant(
        name="lengths_of_the_whole_sequence_on_each_rank",
        file="ring/sharding.py",
        before="within = (lengths - keys.start + keys.step - 1)",
        after="within = (lengths + keys.step - 1)",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="NVIDIA/TransformerEngine: padding lengths that are not cut to the part of a rank",
        subject="bundled-ring",
        needs=("key_lengths",),
    ),
    Mutant(
        name="backward_of_a_rank_reads_a_natural_lse",
        file="ring/passes.py",
        before="lse2 = found.lse * math.log2(math.e)",
        after="lse2 = found.lse",
        outputs=("dq", "dk", "dv"),
        modelled_on="the merge returns a natural LSE, and the backward takes one in base 2",
        semantics="backward-lse-base",
        subject="bundled-ring",
        needs=("backward",),
    ),
)
