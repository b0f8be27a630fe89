"""What the oracles say of a problem, and how far a correct subject may be from it. The only importer of the oracles."""

from __future__ import annotations

import copy
import dataclasses
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from flashverify.outputs import BACKWARD, INPUT_GRADIENTS
from flashverify.truth.clock import timed
from flashverify.truth.empty_rows import with_dlse_of_empty_rows, with_sink_as_lse

if TYPE_CHECKING:
    import torch

    from flashverify.numerics import BackwardBounds, Form, ForwardBounds, OutputBound, StrictBound
    from flashverify.truth.inputs import Inputs

__all__ = ["Truth", "gradients_of"]


class _Given(NamedTuple):
    """What was last asked of a truth: the O and LSE, the oracle's gradients given them, and what `given` said; None where nothing is known but the gradients."""

    o: torch.Tensor
    lse: torch.Tensor
    values: Any
    found: tuple[dict[str, tuple[torch.Tensor, OutputBound]], dict[str, tuple[torch.Tensor, OutputBound]]] | None


class Truth:
    """Values and bounds of one problem for one form; each part is computed when it is first asked for.

    Args:
        inputs: the problem.
        dtype: of the subject's tensors, `fp16`, `bf16` or `fp32`.
        form: the subject's numerical form.

    Attributes:
        problem: as the bounds take it.
    """

    _last: _Given | None = None

    @timed
    def __init__(self, inputs: Inputs, dtype: str, form: Form) -> None:
        import flashverify_oracles as oracles
        from flashverify.numerics import BoundInputs

        self.inputs = inputs.dense()
        self.dtype = dtype
        self.form = form
        i = self.inputs
        self.problem = BoundInputs.of(i.q, i.k, i.v, dtype=dtype, form=form, **i.problem(), **i.scales())
        self._forward = oracles.forward(i.q, i.k, i.v, **i.problem())

    def read_as(self, form: Form) -> Truth:
        """The truth of the same problem for a form that differs in its backward alone."""
        other = copy.copy(self)
        other._last = None
        other.form, other.problem = form, dataclasses.replace(self.problem, form=form)
        return other

    @cached_property
    def readings(self) -> tuple[Truth, ...]:
        """The truths of all forms that this form may stand for, itself first."""
        from flashverify.numerics import readings

        _ = self._forward_bounds  # which all of them share
        return (self, *(self.read_as(form) for form in readings(self.form)[1:]))

    @cached_property
    @timed
    def _forward_bounds(self) -> ForwardBounds:
        from flashverify.numerics import forward_bounds

        return forward_bounds(self.problem, self._forward.o, self._forward.lse)

    @property
    def empty_rows(self) -> torch.Tensor:
        """Bool `[B, Hq, Sq]`: rows that see no key."""
        return self._forward.lse == -math.inf

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

    def forward(self) -> dict[str, tuple[torch.Tensor, OutputBound]]:
        """(value, bound) of `o` and of `lse`, the latter in the base of `form.lse_base`."""
        unit = 1.0 if self.form.lse_base == "e" else 1.0 / math.log(2.0)
        bounds = self._forward_bounds
        lse = self._forward.lse * unit, bounds.lse
        return {"o": (self._forward.o, bounds.o), "lse": with_sink_as_lse(self, *lse) if self.sums_sink else lse}

    def strict(self) -> dict[str, tuple[torch.Tensor, OutputBound]]:
        """(value, bound) of `o` from the weights as a declared order of tiles must round them; empty where nothing is sharper so."""
        return _strict("o", self._forward_bounds.strict)

    def backward(self) -> dict[str, tuple[torch.Tensor, OutputBound]]:
        """(value, bound) of `delta` as `form.stored_delta` has it, `dq`, `dk`, `dv`, and of each learned tensor that the problem has, end to end."""
        o, lse = self._forward.o, self._forward.lse
        return self._gradients(self._oracle_gradients(o, lse), o, lse, self._forward_bounds)[0]

    def widest(self) -> dict[str, tuple[torch.Tensor, OutputBound]]:
        """What `backward` gives, with the largest bound of each element over all readings of the form."""
        first, *others = (truth.backward() for truth in self.readings)
        return {name: (value, bound.united([o[name][1] for o in others])) for name, (value, bound) in first.items()}

    def exact(self, name: str) -> torch.Tensor:
        """The exact value of an output, end to end."""
        forward = self.forward()
        return (forward if name in forward else self.backward())[name][0]

    def directed(self) -> Truth:
        """The same problem with bounds that hold only errors which may share a direction (docs/bounds.md, section 22)."""
        part = copy.copy(self)
        part.__dict__.pop("_forward_bounds", None)
        part._last = None if self._last is None else self._last._replace(found=None)
        part.problem = self.problem.directed_part()
        return part

    def natural(self, lse: torch.Tensor) -> torch.Tensor:
        """A subject's LSE, in the base of `form.lse_base`, as a natural one in float64; -inf in rows that see no key."""
        unit = 1.0 if self.form.lse_base == "e" else math.log(2.0)
        return (lse.double() * unit).masked_fill(self.empty_rows, -math.inf)

    def conditional(self, o: torch.Tensor, lse: torch.Tensor) -> dict[str, tuple[torch.Tensor, OutputBound]]:
        """The same, given the subject's own stored O and LSE; rows that see no key keep the oracle's.

        Args:
            o: `[B, Hq, Sq, Dv]`, finite where it matters.
            lse: `[B, Hq, Sq]`, in the base of `form.lse_base`.
        """
        return self.given(o, lse)[0]

    def given(
        self, o: torch.Tensor, lse: torch.Tensor
    ) -> tuple[dict[str, tuple[torch.Tensor, OutputBound]], dict[str, tuple[torch.Tensor, OutputBound]]]:
        """What `conditional` gives, and beside it the strict value and bound of `dv`, empty where nothing is sharper so.

        Both are empty for a backward that reads neither O nor the LSE: there `backward` says everything.
        """
        from_weights, kept = self.form.delta_from == "p", self.form.p_from == "forward"
        if from_weights and kept:
            return {}, {}
        values, asked = None, (o, lse)
        if self._last is not None and self._last.o is o and self._last.lse is lse:
            if self._last.found is not None:
                return self._last.found
            values = self._last.values
        o, lse, forward = self.read(o, lse)
        stored = frozenset(({"o"} - {"o" if from_weights else ""}) | ({"lse"} - {"lse" if kept else ""}))
        values = self._oracle_gradients(o, lse) if values is None else values
        found = self._gradients(values, o, lse, forward, stored)
        self._last = _Given(*asked, values, found)
        return found

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

    @timed
    def _gradients(
        self,
        values: Any,
        o: torch.Tensor,
        lse: torch.Tensor,
        forward: ForwardBounds | None,
        stored: frozenset[str] = frozenset(),
    ) -> tuple[dict[str, tuple[torch.Tensor, OutputBound]], dict[str, tuple[torch.Tensor, OutputBound]]]:
        from flashverify.numerics import backward_bounds

        i = self.inputs
        assert i.do is not None
        bounds: BackwardBounds = backward_bounds(
            self.problem,
            do=i.do,
            o=o,
            lse=lse,
            dlse=i.dlse,
            forward=forward,
            stored=stored or None,
            relative_buckets=i.relative_buckets,
            **{name: getattr(values, name) for name in INPUT_GRADIENTS},
        )
        found = gradients_of(values)
        if i.dlse is not None and self.form.stored_delta == "minus_dlse":
            found["delta"] = (found["delta"] - i.dlse.double()).masked_fill(self.empty_rows, 0.0)
        pairs = {name: (value, getattr(bounds, name)) for name, value in found.items()}
        if self.sums_sink and i.dlse is not None and "dsink" in pairs:
            pairs["dsink"] = with_dlse_of_empty_rows(self, *pairs["dsink"], conditional="lse" in stored)
        return pairs, _strict("dv", bounds.strict)


def _strict(name: str, found: StrictBound | None) -> dict[str, tuple[torch.Tensor, OutputBound]]:
    return {} if found is None else {name: (found.value, found.bound)}


def gradients_of(values: Any) -> dict[str, torch.Tensor]:
    """The gradients that there are, by name."""
    return {name: found for name in BACKWARD if (found := getattr(values, name)) is not None}
