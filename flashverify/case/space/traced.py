"""What `torch.compile` makes a function anew for beside what a kernel is compiled for: all of it is part of the kind of a case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from flashverify.case.case import Grad
from flashverify.case.space.storage_draws import scale_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flashverify.case.case import Case, Storage
    from flashverify.case.masks.causal import Causal
    from flashverify.case.masks.mask import Mask
    from flashverify.case.space.heads import Heads
    from flashverify.case.supports import Supports

__all__ = ["Traced", "traced_of", "with_alignment", "with_grad", "with_storage"]

_WILD = 4
"""One kind in so many has another layout, scale or set of gradients than most programs have; the next such kind has another one of them."""
_FORWARD = 5
"""One kind in so many has no backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """The part of a kind that a traced function has and a kernel has not. Lengths of 1 and of one block are compiled apart besides.

    Attributes:
        heads: (batch, heads_q, heads_kv).
        causal: alignment of a causal mask.
        scale: of the logits; None is the default.
        layout: of `Storage`.
        gap: likewise.
        expand: likewise.
        transposed: likewise.
        strided: likewise.
        backward: whether there are gradients.
    """

    heads: Heads
    causal: Causal = "top-left"
    scale: float | None = None
    layout: str = "bhsd"
    gap: int = 0
    expand: bool = False
    transposed: bool = False
    strided: bool = False
    backward: bool = True


def traced_of(
    supports: Supports, heads: Sequence[Heads], number: int, parts: frozenset[str], *, aligned: bool
) -> Traced | None:
    """What the kind of this number has; None for a subject that torch does not trace.

    Args:
        supports: what the subject declares.
        heads: to choose from.
        number: of the kind in its list.
        parts: of its mask; rows of packed sequences lie in the order of most programs, all heads of a token together.
        aligned: whether strides are multiples of 16 bytes.
    """
    if not supports.traced:
        return None
    layouts = [layout for layout in ("bshd", "bhsd") if layout in supports.layouts]
    scales = scale_choices(supports)
    plain = Traced(
        heads=heads[number * 7 % len(heads)] if len(heads) % 7 else heads[number % len(heads)],
        causal=cast("Causal", supports.causal[number // 3 % len(supports.causal)]),
        scale=scales[0],
        layout=layouts[0 if "packed" in parts else number // 2 % len(layouts)],
        backward=supports.backward and number % _FORWARD != _FORWARD - 1,
    )
    turn, rest = divmod(number, _WILD)
    if rest != _WILD - 1:
        return plain
    wild: list[dict[str, int | float | bool | None]] = [{"scale": scale} for scale in dict.fromkeys(scales[1:])]
    wild += [{"gap": 8 if aligned else 3}] * supports.gaps
    wild += [{name: True} for name in ("expand", "transposed", "strided") if getattr(supports, name)]
    return replace(plain, **wild[turn % len(wild)]) if wild else plain  # type: ignore[arg-type]


def with_alignment(mask: Mask, traced: Traced) -> Mask:
    """A mask whose causal part, if it has one, is aligned as that of the kind."""
    return mask if mask.causal is None else replace(mask, causal=traced.causal)


def with_storage(storage: Storage, traced: Traced) -> Storage:
    """A storage with the strides of the kind; addresses and what the padding holds stay."""
    return replace(
        storage,
        layout=traced.layout,
        gap=traced.gap,
        expand=traced.expand,
        transposed=traced.transposed,
        strided=traced.strided,
    )


def with_grad(case: Case, traced: Traced) -> Case:
    """A case with the scale of the kind, and with gradients where the kind has some."""
    grad = case.grad if case.grad.backward == traced.backward else Grad(backward=traced.backward)
    return replace(case, scale=traced.scale, grad=grad)
