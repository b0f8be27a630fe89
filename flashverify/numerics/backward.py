"""Worst-case bounds of delta, dQ, dK, dV and of the gradients of what modifies the logits (docs/bounds.md, sections 8 to 13), end to end and conditional."""

import functools
from collections.abc import Collection, Iterator, Sequence

from torch import Tensor

from flashverify.formats import FORMATS, Format
from flashverify.numerics.backward_terms import Mode, ModeTerms
from flashverify.numerics.bound_inputs import BoundInputs, Pairs
from flashverify.numerics.coefficients import Coefficients
from flashverify.numerics.learned import bias_terms
from flashverify.numerics.relative import table_terms
from flashverify.numerics.result import BackwardBounds, ForwardBounds, OutputBound, StrictBound, check, finish, rounded
from flashverify.numerics.self_error import float64_coefficients
from flashverify.numerics.sinks import sink_bound_terms
from flashverify.numerics.strict import join_strict
from flashverify.numerics.terms import KeySum
from flashverify.numerics.together import bounds_of_each

__all__ = ["Mode", "backward_bounds", "bounds_of_modes"]

_PAIRS_ON_CPU = 1 << 15


def backward_bounds(
    problem: BoundInputs,
    *,
    do: Tensor,
    o: Tensor,
    lse: Tensor,
    dq: Tensor,
    dk: Tensor,
    dv: Tensor,
    dlse: Tensor | None = None,
    dbias: Tensor | None = None,
    dsink: Tensor | None = None,
    drelative_bias: Tensor | None = None,
    relative_buckets: Pairs | None = None,
    forward: ForwardBounds | None = None,
    stored: Collection[str] | None = None,
) -> BackwardBounds:
    """Bound every element of delta, dQ, dK and dV, and of the gradients of bias, sink and relative bias, for a kernel of the problem's form.

    End to end (`forward` given): `o`, `lse` and the gradients are the oracle's, and the errors of the stored O and LSE are carried through.
    Conditional (`forward` None): `o` and `lse` are the subject's own, the oracle's gradients were computed from them, and their error is no part of B.
    A backward that reads only one of them is given the bounds of the forward for the other, and `stored` names the one that it reads.

    Args:
        problem: The problem.
        do: Gradient of O, `[B, Hq, Sq, Dv]`.
        o: O, `[B, Hq, Sq, Dv]`.
        lse: LSE, `[B, Hq, Sq]`, natural logarithm (convert a subject's base-2 LSE in float64).
        dq: The oracle's dQ, `[B, Hq, Sq, D]`, float64.
        dk: The oracle's dK, `[B, Hkv, Sk, D]`, float64, summed over the group.
        dv: The oracle's dV, `[B, Hkv, Sk, Dv]`, float64, summed over the group.
        dlse: Gradient of the natural LSE, `[B, Hq, Sq]`, or None.
        dbias: The oracle's gradient of one bias, in its shape of four axes that broadcast to `[B, Hq, Sq, Sk]`, float64, or None.
        dsink: The oracle's gradient of the sink, `[Hq]`, float64, or None.
        drelative_bias: The oracle's gradient of the table of a relative bias, `[Hq, buckets]`, float64, or None.
        relative_buckets: The bucket of each pair, as `onto_buckets` takes it; given with `drelative_bias`.
        forward: The forward bounds, for the end-to-end mode.
        stored: Which of `"o"` and `"lse"` are the subject's own; None for both where `forward` is None, and for neither where it is given.

    Returns:
        The bounds and E64; of delta, of what the form says that it holds. Rows that see nothing, and keys that nothing sees, are exact: bound 0.
    """
    mode = Mode(
        o=o, lse=lse, dq=dq, dk=dk, dv=dv, dbias=dbias, dsink=dsink, drelative_bias=drelative_bias, forward=forward, stored=stored
    )  # fmt: skip
    return bounds_of_modes(problem, [mode], do=do, dlse=dlse, relative_buckets=relative_buckets)[0]


def bounds_of_modes(
    problem: BoundInputs,
    modes: Sequence[Mode],
    *,
    do: Tensor,
    dlse: Tensor | None = None,
    relative_buckets: Pairs | None = None,
) -> list[BackwardBounds]:
    """What `backward_bounds` says of each mode of one problem, whose terms are held at once: in fewer operations where they are small.

    Args:
        problem: The problem.
        modes: Its modes.
        do: As `backward_bounds` takes it.
        dlse: Likewise.
        relative_buckets: Likewise.
    """
    if problem.shape.Sk == 0 or modes[0].lse.numel() == 0:
        return [mode.exactly() for mode in modes]
    c, c64 = problem.coefficients(), float64_coefficients(problem.shape, problem.scale, problem.features)
    out = FORMATS[problem.form.grad_dtype or problem.dtype]
    alike = [modes] if _side_by_side(problem, c, modes) else [[mode] for mode in modes]
    terms = [
        each
        for some in alike
        for each in ModeTerms.of(problem, c, c64, some, do=do, dlse=dlse, relative_buckets=relative_buckets)
    ]
    inputs, single, biases = (dict[tuple[int, str], tuple[Tensor, ...]]() for _ in range(3))
    for number, each in enumerate(terms):
        for name, tensors in _of_inputs(each, c, c64):
            inputs[number, name] = tensors
        single[number, "delta"] = _of_delta(problem, each)
        if each.sink is not None and each.mode.dsink is not None:
            single[number, "dsink"] = sink_bound_terms(problem, c, c64, each.mode.dsink, each.sink)
        if each.table is not None and each.mode.drelative_bias is not None:
            single[number, "drelative_bias"] = table_terms(c, c64, each.mode.drelative_bias, each.table)
        if each.bias is not None and each.mode.dbias is not None:
            biases[number, "dbias"] = bias_terms(problem, c, c64, each.mode.dbias, each.bias)
    found, made = dict[tuple[int, str], OutputBound](), list[OutputBound]()
    for function, outputs in (
        (functools.partial(_of_gradient, c, c64, out), inputs),
        (functools.partial(_finished, FORMATS["fp32"]), single),
        (functools.partial(_finished, out), biases),
    ):
        bounds = bounds_of_each(function, list(outputs.values()))
        found |= zip(outputs, bounds.each, strict=True)
        made += bounds.made
    check(*made)
    return [
        BackwardBounds(
            **{name: bound for (place, name), bound in found.items() if place == number},
            strict=_strict_dv(each, c, found[number, "dv"], out),
        )
        for number, each in enumerate(terms)
    ]


def _side_by_side(problem: BoundInputs, c: Coefficients, modes: Sequence[Mode]) -> bool:
    """Whether the modes are computed side by side: their pairs are few enough to be held at once. On a CPU, whose operations cost less, fewer."""
    if c.delta_weights or c.truncation is not None or not problem.undivided:
        return False
    pairs = len(modes) * problem.q.shape[:4].numel() * problem.shape.Sk
    return pairs <= (problem.chunk_elements if problem.q.is_cuda else _PAIRS_ON_CPU)


def _of_inputs(terms: ModeTerms, c: Coefficients, c64: Coefficients) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """What `_of_gradient` takes of dQ, dK and dV."""
    rows, keys, mode = terms.rows, terms.keys, terms.mode
    yield "dq", (rows.dq.double(), rows.dq_core, rows.dq_self, rows.dq_exact, rows.dq_exempt, rows.dq_trivial)

    def by_key(y: Tensor, found: KeySum, const: float, const64: float) -> tuple[Tensor, ...]:
        core, core64 = found.core + const, found.self_core + const64
        sums = (core, core64, ~(keys.seen | found.hidden), found.exempt, found.trivial + 2 * const)
        return (y.double(), *(x.reshape(*y.shape[:3], x.shape[-1]) for x in sums))

    yield "dk", by_key(mode.dk, keys.dk, c.const_k, c64.const_k)
    yield "dv", by_key(mode.dv, keys.dv, c.const_v, c64.const_v)


def _of_delta(problem: BoundInputs, terms: ModeTerms) -> tuple[Tensor, ...]:
    """What `_finished` takes of delta."""
    rows = terms.rows
    exact = rows.dq_exact if problem.form.delta_from == "p" else rows.empty
    sums = (
        rows.delta,
        rows.delta_bound,
        rows.delta_bound,
        rows.delta_self,
        exact,
        rows.delta_exempt,
        rows.delta_trivial,
    )
    return tuple(x.squeeze(-1) for x in sums)


def _finalise(core: Tensor, size: Tensor, c: Coefficients) -> tuple[Tensor, Tensor]:
    """`b = core + 3u (|y| + core)`, and with the output's rounding `b + u_out (|y| + b) + eta_out`; `size` is |y|."""
    b = (size + core).mul_(3 * c.u).add_(core)
    return b, rounded(b, size, c.u_grad, c.eta_grad)


def _of_gradient(
    c: Coefficients, c64: Coefficients, out: Format,
    y: Tensor, core: Tensor, core64: Tensor, exact: Tensor, exempt: Tensor, trivial: Tensor,
) -> OutputBound:  # fmt: skip
    """The bound of a gradient from its errors before finalisation."""
    size = y.abs()
    before, after = _finalise(core, size, c)
    own = _finalise(core64, size, c64)[1]
    return finish(y, before, after, own, exact=exact, exempt=exempt, trivial=trivial + 2 * out.eta, out=out, size=size)


def _finished(out: Format, *given: Tensor) -> OutputBound:
    """What `finish` says of the tensors that it takes, in its order."""
    y, unrounded, bound, self_error, exact, exempt, trivial = given
    return finish(y, unrounded, bound, self_error, exact=exact, exempt=exempt, trivial=trivial, out=out)


def _strict_dv(terms: ModeTerms, c: Coefficients, ordinary: OutputBound, out: Format) -> StrictBound | None:
    """The strict bound of dV where one is predicted."""
    dv, predicted = terms.mode.dv, terms.keys.strict
    if predicted is None:
        return None
    value, core = predicted.value.reshape(dv.shape), predicted.core.reshape(dv.shape)
    error = _finalise(core + c.const_v, value.abs(), c)[0]
    return join_strict(ordinary, dv.double(), value, error, out, c.eta_grad)
