"""What the oracles say of a problem, and how far a correct subject may be from it. The only importer of the oracles."""

from __future__ import annotations

import copy
import dataclasses
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flashverify.truth.clock import timed
from flashverify.truth.empty_rows import with_sink_as_lse
from flashverify.truth.gradients import Given, GradientMode, bounded, strict_pair

if TYPE_CHECKING:
    import torch

    from flashverify.numerics import Form, ForwardBounds
    from flashverify.truth.gradients import Found, Pairs
    from flashverify.truth.inputs import Inputs


__all__ = ["Truth"]


class Truth:
    """Values and bounds of one problem for one form; each part is computed when it is first asked for.

    Args:
        inputs: the problem.
        dtype: of the subject's tensors, `fp16`, `bf16` or `fp32`.
        form: the subject's numerical form.
        finite: q, k and v are those of `inputs_of`, which are finite; otherwise a GPU is asked.

    Attributes:
        problem: as the bounds take it.
        empty_rows: bool `[B, Hq, Sq]`: rows that see no key.
    """

    _last: Given | None = None
    _whole: Pairs | None = None

    @timed
    def __init__(self, inputs: Inputs, dtype: str, form: Form, *, finite: bool = False) -> None:
        import flashverify_oracles as oracles
        from flashverify.numerics import BoundInputs

        self.inputs = inputs.dense()
        self.dtype = dtype
        self.form = form
        i = self.inputs
        self.problem = BoundInputs.of(i.q, i.k, i.v, dtype=dtype, form=form, finite=finite, **i.problem(), **i.scales())
        self._forward = oracles.forward(i.q, i.k, i.v, **i.problem())
        self.empty_rows: torch.Tensor = self._forward.lse == -math.inf

    def read_as(self, form: Form) -> Truth:
        """The truth of the same problem for a form that differs in its backward alone."""
        other = copy.copy(self)
        other._last = other._whole = None
        other.form, other.problem = form, dataclasses.replace(self.problem, form=form)
        return other

    @property
    def readings(self) -> tuple[Truth, ...]:
        """The truths of all forms that this form may stand for, itself first."""
        return self, *self._other_readings

    @cached_property
    def _other_readings(self) -> tuple[Truth, ...]:
        """Without itself: what holds itself holds its tensors until a collection of garbage."""
        from flashverify.numerics import readings

        _ = self._forward_bounds  # which all of them share
        return tuple(self.read_as(form) for form in readings(self.form)[1:])

    @cached_property
    @timed
    def _forward_bounds(self) -> ForwardBounds:
        from flashverify.numerics import forward_bounds

        return forward_bounds(self.problem, self._forward.o, self._forward.lse)

    @property
    def exact_lse(self) -> torch.Tensor:
        """The natural LSE `[B, Hq, Sq]`, float64."""
        return self._forward.lse

    @property
    def exact_o(self) -> torch.Tensor:
        """O, float64, of which no bound is computed."""
        return self._forward.o

    @property
    def sums_sink(self) -> bool:
        """Whether the LSE of a row that sees no key is the sink of its head."""
        return self.form.empty_row_lse == "sink" and self.inputs.sink is not None

    def forward(self) -> Pairs:
        """(value, bound) of `o` and of `lse`, the latter in the base of `form.lse_base`."""
        unit = 1.0 if self.form.lse_base == "e" else 1.0 / math.log(2.0)
        bounds = self._forward_bounds
        lse = self._forward.lse * unit, bounds.lse
        return {"o": (self._forward.o, bounds.o), "lse": with_sink_as_lse(self, *lse) if self.sums_sink else lse}

    def strict(self) -> Pairs:
        """(value, bound) of `o` from the weights as a declared order of tiles must round them; empty where nothing is sharper so."""
        return strict_pair("o", self._forward_bounds.strict)

    def backward(self) -> Pairs:
        """(value, bound) of `delta` as `form.stored_delta` has it, `dq`, `dk`, `dv`, and of each learned tensor that the problem has, end to end."""
        return self._whole or bounded(self, [self._own_mode(self._own_gradients())])[0][0]

    def widest(self) -> Pairs:
        """What `backward` gives, with the largest bound of each element over all readings of the form."""
        own = self._own_gradients()  # which all readings share
        first, *others = (bounded(truth, [truth._own_mode(own)])[0][0] for truth in self.readings)
        return {name: (value, bound.united([o[name][1] for o in others])) for name, (value, bound) in first.items()}

    def exact(self, name: str) -> torch.Tensor:
        """The exact value of an output, end to end."""
        forward = self.forward()
        return (forward if name in forward else self.backward())[name][0]

    def directed(self) -> Truth:
        """The same problem with bounds that hold only errors which may share a direction (docs/bounds.md, section 22)."""
        part = copy.copy(self)
        for name in ("_forward_bounds", "_other_readings"):
            part.__dict__.pop(name, None)
        part._last, part._whole = None if self._last is None else self._last._replace(found=None), None
        part.problem = self.problem.directed_part()
        return part

    def natural(self, lse: torch.Tensor) -> torch.Tensor:
        """A subject's LSE, in the base of `form.lse_base`, as a natural one in float64; -inf in rows that see no key."""
        unit = 1.0 if self.form.lse_base == "e" else math.log(2.0)
        return (lse.double() * unit).masked_fill(self.empty_rows, -math.inf)

    def conditional(self, o: torch.Tensor, lse: torch.Tensor) -> Pairs:
        """The same, given the subject's own stored O and LSE; rows that see no key keep the oracle's.

        Args:
            o: `[B, Hq, Sq, Dv]`, finite where it matters.
            lse: `[B, Hq, Sq]`, in the base of `form.lse_base`.
        """
        return self.given(o, lse)[0]

    def given(self, o: torch.Tensor, lse: torch.Tensor) -> Found:
        """What `conditional` gives, and beside it the strict value and bound of `dv`, empty where nothing is sharper so.

        Both are empty for a backward that reads neither O nor the LSE: there `backward` says everything.
        """
        known = self._known(o, lse)
        return known if known is not None else self._kept(*bounded(self, [self._given_mode(o, lse)]))

    def in_both_modes(self, o: torch.Tensor, lse: torch.Tensor) -> tuple[Pairs, Found]:
        """What `backward` and `given` give; together where the problem is small."""
        known = self._known(o, lse)
        if known is not None or not self.problem.undivided:
            return self.backward(), known or self.given(o, lse)
        (self._whole, _), given = bounded(self, [self._own_mode(self._own_gradients()), self._given_mode(o, lse)])
        return self._whole, self._kept(given)

    def _known(self, o: torch.Tensor, lse: torch.Tensor) -> Found | None:
        """What `given` says without a computation."""
        if self.form.delta_from == "p" and self.form.p_from == "forward":
            return {}, {}
        return self._last.found if self._last is not None and self._last.o is o and self._last.lse is lse else None

    def _kept(self, found: Found) -> Found:
        assert self._last is not None
        self._last = self._last._replace(found=found)
        return found

    def _own_gradients(self) -> Any:
        """The oracle's gradients from its own O and LSE."""
        return self._oracle_gradients(self._forward.o, self._forward.lse)

    def _own_mode(self, values: Any) -> GradientMode:
        return GradientMode(values, self._forward.o, self._forward.lse, self._forward_bounds, frozenset())

    def _given_mode(self, o: torch.Tensor, lse: torch.Tensor) -> GradientMode:
        """The mode of a subject's O and LSE; the oracle's gradients of the last ones that were asked for are kept."""
        stored = frozenset(
            (*(["o"] if self.form.delta_from != "p" else []), *(["lse"] if self.form.p_from != "forward" else []))
        )
        again = self._last is not None and self._last.o is o and self._last.lse is lse
        read_o, read_lse, forward = self.read(o, lse)
        values = self._last.values if again and self._last is not None else self._oracle_gradients(read_o, read_lse)
        self._last = Given(o, lse, values, None)
        return GradientMode(values, read_o, read_lse, forward, stored)

    def read(self, o: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, ForwardBounds | None]:
        """What the backward of the form starts from, float64, LSE natural: of the subject's own O and LSE what it reads.

        `sum P dP` with `P = exp(S - lse)` is rowsum(dO * O) with the exact O times `exp(L - lse)`. The bounds of the forward come with
        what is not the subject's own; their E64 of O is scaled likewise.

        Args:
            o: as in `conditional`.
            lse: likewise.
        """
        empty, exact = self.empty_rows, self._forward
        o, lse = o.double().masked_fill(empty.unsqueeze(-1), 0.0), self.natural(lse)
        if self.form.p_from == "forward":
            return o, exact.lse, self._forward_bounds
        if self.form.delta_from != "p":
            return o, lse, None
        found = self._forward_bounds
        factor = (exact.lse - lse).masked_fill(empty, 0.0).exp().unsqueeze(-1)
        own = found.o.self_error + exact.o.abs() * (found.lse_base2[..., 1:] * math.log(2.0))
        scaled = dataclasses.replace(found.o, self_error=(own * factor).nan_to_num(0.0))
        return (exact.o * factor).masked_fill(empty.unsqueeze(-1), 0.0), lse, dataclasses.replace(found, o=scaled)

    @timed
    def _oracle_gradients(self, o: torch.Tensor, lse: torch.Tensor) -> Any:
        """The oracle's gradients from an O and a natural LSE, its own or given ones."""
        import flashverify_oracles as oracles

        i = self.inputs
        assert i.do is not None, "the problem has no dO"
        return oracles.backward(
            i.q,
            i.k,
            i.v,
            i.do,
            **i.problem(),
            forward=self._forward,
            dlse=i.dlse,
            **i.learned(),
            given_o=None if o is self._forward.o else o,
            given_lse=None if lse is self._forward.lse else lse,
        )
