"""`assert_attention_close`: the bounds for people who keep their own tests."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, Unpack

from flashverify.api.hints import shape_hint, value_hints
from flashverify.api.layouts import to_bhsd
from flashverify.api.options import AttentionOptions, check_names, value_of, with_options
from flashverify.api.tensors import as_tensor, require_shape
from flashverify.errors import UsageError
from flashverify.outputs import BACKWARD, output

if TYPE_CHECKING:
    import torch

    from flashverify.api.arguments import Arguments
    from flashverify.judge.verdict import OutputStats
    from flashverify.numerics import Form

__all__ = ["assert_attention_close"]


@with_options
def assert_attention_close(
    q: Any,
    k: Any,
    v: Any,
    *,
    o: Any = None,
    lse: Any = None,
    delta: Any = None,
    dq: Any = None,
    dk: Any = None,
    dv: Any = None,
    dbias: Any = None,
    dsink: Any = None,
    drelative_bias: Any = None,
    form: Form | None = None,
    lse_base: Literal["e", "2"] | None = None,
    padding: Literal["written", "undefined"] = "written",
    empty_row_o: float = 0.0,
    empty_row_lse: float = -math.inf,
    conditional: bool | None = None,
    not_interpreted: bool = False,
    **options: Unpack[AttentionOptions],
) -> tuple[OutputStats, ...]:
    """Asserts that every element of every given output is within the bound of a correct kernel.

    There is no tolerance to choose: the bound of each element follows from the inputs, the dtype and the numerical form. Given O and LSE,
    the gradients are judged a second time (mode `conditional`), against the oracle that uses that very O and LSE. Gradients that are wrong
    so are right where another backward explains all of them, such as autograd's, whose delta is the sum of P dP.

        o, lse = my_attention(q, k, v, causal=True)
        assert_attention_close(q, k, v, o=o, lse=lse, causal="top-left")

    Args:
        q: exactly as the kernel saw it, as in `oracle`.
        k: likewise.
        v: likewise.
        o: `[B, Hq, Sq, Dv]` in the dtype of q; `layout` names other axes, as for all outputs.
        lse: `[B, Hq, Sq]` fp32.
        delta: `[B, Hq, Sq]` fp32, rowsum(dO * O) or, by `form.stored_delta`, that minus dLSE.
        dq: shaped as q; the gradients need `do` or `dlse`.
        dk: shaped as k.
        dv: shaped as v.
        dbias: shaped as `bias`.
        dsink: `[Hq]` fp32.
        drelative_bias: `[Hq, buckets]` fp32.
        form: the kernel's numerical form; by default the widest one of a kernel that accumulates in fp32.
        lse_base: base of `lse`, `e` or `2`; by default `form.lse_base`, which is `e` unless the form says otherwise.
        padding: whether elements behind the declared lengths are 0 (and LSE `empty_row_lse`) or may hold anything. Behind the last of
            packed sequences they always may.
        empty_row_o: O of a row that sees no key.
        empty_row_lse: LSE of such a row.
        conditional: whether the backward reads the given O and LSE, as that of every flash attention. None is unknown: it may keep P or an
            unrounded O, as autograd of the definition does (`Form.delta_from`, `Form.p_from`), and must be right as one of these. False
            for one that reads neither: it is judged end to end alone.
        not_interpreted: says that no kernel of the outputs ran in Triton's own interpreter. It is asked where bf16 on the CPU cannot be
            trusted: see `corrected_interpreter`.
        options: masks, modifiers of the logits, dropout and incoming gradients: see `AttentionOptions`.

    Returns:
        For each output how close it came to its bound (ratio = error / bound).

    Raises:
        AssertionError: an element is outside its bound, or non-finite where it must not be. The message names the worst, and the layout
            where the outputs are right under another one.
        UsageError: an argument has the wrong shape, dtype or value, there is nothing to judge, or the outputs are bf16 from Triton's own
            interpreter.
        TypeError: an argument is unknown.
    """
    from flashverify.api.arguments import read_arguments
    from flashverify.api.comparison import Padding, compare
    from flashverify.api.interpreting import refuse_stock_bf16

    check_names("assert_attention_close", options)
    rules = Padding(padding, empty_row_o, empty_row_lse)
    given = {"o": o, "lse": lse, "delta": delta, "dq": dq, "dk": dk, "dv": dv, "dbias": dbias, "dsink": dsink}
    given["drelative_bias"] = drelative_bias
    outputs = {name: as_tensor(name, value) for name, value in given.items() if value is not None}
    _check_outputs(outputs, options)
    judged_form = _form(form, lse_base)

    def judged(layout: str, exchanged: str = "") -> tuple[tuple[OutputStats, ...], list[str]]:
        """Statistics and failures with every tensor read in a layout, axes 1 and 2 of one output exchanged."""
        arguments = read_arguments(q, k, v, {**options, "layout": layout})
        read = {name: x.transpose(1, 2) if name == exchanged else x for name, x in outputs.items()}
        return compare(arguments, _fitting(read, arguments), judged_form, rules, conditional=conditional)

    layout = value_of(options, "layout")
    refuse_stock_bf16(as_tensor("q", q), not_interpreted)
    stats, failures = judged(layout)
    if failures:
        hints = value_hints(judged, layout, outputs)
        raise AssertionError("attention is outside its bounds:\n  " + "\n  ".join([*failures, *hints]))
    return stats


def _check_outputs(outputs: dict[str, torch.Tensor], options: AttentionOptions) -> None:
    """Refuses outputs whose input is missing."""
    if not outputs:
        raise UsageError(f"nothing to judge: give at least one of o, lse, {', '.join(BACKWARD)}")
    gradients = [name for name in BACKWARD if name in outputs]
    if gradients and value_of(options, "do") is None and value_of(options, "dlse") is None:
        raise UsageError(
            f"do=None is not accepted: the gradients {', '.join(gradients)} need the gradient of O, or dlse that of LSE"
        )
    for name in gradients:
        source = output(name).gradient_of or ""
        if output(name).optional and value_of(options, source) is None:
            raise UsageError(f"{source}=None is not accepted: {name} is its gradient")


def _form(form: Form | None, lse_base: str | None) -> Form:
    """The form with the base of the LSE.

    Raises:
        UsageError: the base is unknown, or the form states another one than its default and than the argument.
    """
    from flashverify.numerics import Form

    if lse_base not in (None, "e", "2"):
        raise UsageError(f"lse_base={lse_base!r} is not accepted: 'e' or '2'")
    if form is None:
        return Form(lse_base=lse_base or "e")
    if lse_base is None or lse_base == form.lse_base:
        return form
    if form.lse_base != Form().lse_base:
        raise UsageError(f"lse_base={lse_base!r} contradicts form.lse_base={form.lse_base!r}: state it once")
    return dataclasses.replace(form, lse_base=lse_base)


def _fitting(outputs: dict[str, torch.Tensor], arguments: Arguments) -> dict[str, torch.Tensor]:
    """The outputs as `[B, H, S, D]`.

    Raises:
        UsageError: one has another shape than the problem gives it; the message names the layout that would have fitted.
    """
    from flashverify.outputs import expected_shapes

    shapes = expected_shapes(arguments.problem)
    found = {}
    for name, tensor in outputs.items():
        found[name] = to_bhsd(name, tensor, arguments.layout).to(arguments.problem.q.device)
        if tuple(found[name].shape) != shapes[name]:
            require_shape(name, tensor, *shape_hint(name, tensor, shapes[name], arguments, outputs))
    return found
