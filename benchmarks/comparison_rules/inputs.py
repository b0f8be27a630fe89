"""The problems that each suite gives its kernels, scaled to what an interpreted kernel can do: sequences of at most 256.

`own` features are those that a suite's tests parametrise; a mutant that needs another one is out of its reach. For the
libraries that are told what to test (gpucheck, gpuemu) and for plain randn every option that a mutant needs is switched on,
as their user would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from comparison_rules.compose import Shape, compose
from comparison_rules.values import CONSTANTS
from flashverify.errors import UsageError

if TYPE_CHECKING:
    from flashverify.case.case import Case
    from flashverify.mutants.mutant import Mutant
    from flashverify.subjects.interface import Subject

__all__ = ["INPUTS", "SUBJECTS", "InputSet", "own_cases"]

SUBJECTS = ("bundled", "bundled-decode", "bundled-chunked")
"""The adapters whose problems the suites have too."""

_ATTEMPTS = 20
"""Draws per case that is wanted."""
_TILES = ((16, 32), (32, 64), (64, 32), (64, 128), (128, 64))
"""Rows and keys of a tile, where a mutant shows only with launch parameters."""
_PAGES = (16, 64, 128)
"""Keys per page, where they are paged."""

Draw = Callable[[Random, str, frozenset[str]], tuple[frozenset[str], Shape]]


@dataclass(frozen=True, slots=True)
class InputSet:
    """How one suite draws its problems.

    Attributes:
        name: in the tables.
        own: features that its tests have; None: whatever is asked for.
        draw: features and shape of one problem, from a random generator, the subject's name and the features needed.
    """

    name: str
    own: frozenset[str] | None
    draw: Draw


def own_cases(inputs: InputSet, subject: Subject, mutant: Mutant, count: int) -> list[Case]:
    """`count` different cases that concern `mutant`, or none where the suite has not what it needs; the same every time."""
    needs = frozenset(mutant.needs)
    if inputs.own is not None and not needs <= inputs.own:
        return []
    rng = Random(f"{inputs.name} {mutant.subject} {sorted(needs)}")
    found: dict[Case, None] = {}
    for _ in range(count * _ATTEMPTS):
        if len(found) == count:
            break
        on, shape = inputs.draw(rng, mutant.subject, needs)
        try:
            case = compose(rng, mutant.subject, on, shape)
        except UsageError:
            continue
        if mutant.concerns(case) and subject.supports.refusal(case) is None:
            found[case] = None
    return list(found)


def _some(rng: Random, *features: str) -> frozenset[str]:
    """Each of them with probability 1/2."""
    return frozenset(feature for feature in features if rng.random() < 0.5)


def _causal(rng: Random, needs: frozenset[str]) -> frozenset[str]:
    """Half of the cases are causal; none with a tree, which is causal itself, but all with a tree in a window, which counts keys."""
    if "tree" in needs:
        return frozenset({"causal"} if "window" in needs else ())
    return _some(rng, "causal")


def _pick(rng: Random, *features: str) -> frozenset[str]:
    """One of them; an empty name is none, and words of a name are features together."""
    return frozenset(rng.choice(features).split())


def _supported(subject: str, on: frozenset[str]) -> frozenset[str]:
    """The features that the subject has; what remains unsupported is refused later."""
    if subject == "bundled-decode":
        features = {
            "causal",
            "window",
            "key_lengths",
            "query_lengths",
            "paged",
            "groups",
            "sequences",
            "tree",
            "launch",
        }
        return on & (features | {"softcap", "alibi", "bias", "sink"})
    if subject == "bundled-chunked":
        return on & {"key_lengths", "groups", "sequences", "launch"}
    return on - {"paged"}


def _randn(rng: Random, subject: str, needs: frozenset[str]) -> tuple[frozenset[str], Shape]:
    """What one writes first: randn, one or two round shapes, with and without a causal mask."""
    seq, dim = rng.choice((64, 128)), rng.choice((32, 64))
    on = needs | _causal(rng, needs)
    dtype, tile = rng.choice(("fp16", "bf16")), rng.choice(_TILES)
    return _supported(subject, on), Shape(
        seq_q=seq, seq_k=seq, dim=dim, dtype=dtype, batch=2, tile=tile, pages=rng.choice(_PAGES)
    )


_FLASH = frozenset(
    "causal window alibi softcap dropout groups sequences packed backward paged key_lengths".split()  # noqa: SIM905
)


def _flash(rng: Random, subject: str, needs: frozenset[str]) -> tuple[frozenset[str], Shape]:
    """tests/test_flash_attn.py: the product of causal, local, ALiBi, softcap, dropout 0.17, GQA, varlen; the kvcache tests."""
    on = needs | _some(rng, "causal", "window", "alibi", "groups", "packed") | _pick(rng, "", "", "dropout", "softcap")
    on = on - {"softcap"} if {"dropout", "softcap"} <= on and "softcap" not in needs else on
    on = on - {"dropout"} if {"dropout", "softcap"} <= on else on
    if "key_lengths" in needs:
        on -= {"packed"}
    seq_q, seq_k = rng.choice(((113, 203), (128, 217), (113, 211), (108, 256), (128, 128), (1, 147)))
    if subject != "bundled":
        on |= {"key_lengths"} | _some(rng, "paged")
        seq_q, seq_k = rng.choice(((1, 128), (1, 239), (3, 250), (16, 128), (1, 147)))
    on = _supported(subject, on | {"sequences"})
    return on, Shape(
        seq_q=seq_q,
        seq_k=seq_k,
        dim=rng.choice((32, 40, 64, 96, 128)),
        dtype=rng.choice(("fp16", "bf16")),
        regime="q-times-50" if "softcap" in on else "normal",
        batch=2,
        grouped=rng.choice(((4, 2), (2, 1))),
        causal="bottom-right",
        layout="bshd",
        pages=64,
    )


_FLEX = frozenset(
    "causal window alibi softcap bias groups sequences packed backward paged key_lengths bitmap blocks dlse launch".split()  # noqa: SIM905
)


def _flex(rng: Random, subject: str, needs: frozenset[str]) -> tuple[frozenset[str], Shape]:
    """test_flex_attention.py, test_flex_decoding.py: one score_mod or mask_mod at a time, GQA, unequal lengths, head dims."""
    mods = ("", "causal", "causal window", "alibi", "softcap", "bias", "packed", "key_lengths", "bitmap", "blocks")
    on = needs | (_pick(rng, *mods) if needs <= {"groups", "sequences", "backward", "paged"} else frozenset())
    on |= (
        _pick(rng, "", "", "groups")
        | _pick(rng, "", "", "", "dlse")
        | (_some(rng, "paged") if "packed" not in on else frozenset())
    )
    seq_q, seq_k = rng.choice(((128, 128), (128, 128), (64, 128), (128, 64), (113, 127)))
    return _supported(subject, on | {"sequences"}), Shape(
        seq_q=seq_q,
        seq_k=seq_k,
        dim=rng.choice((64, 64, 32, 128, 24)),
        dtype=rng.choice(("fp16", "fp16", "bf16", "fp32")),
        batch=2,
        softcap=20.0,
        pages=128,
        tile=rng.choice(_TILES),
    )


def _gpucheck(rng: Random, subject: str, needs: frozenset[str]) -> tuple[frozenset[str], Shape]:
    """fuzzing/{shapes,inputs}.py: primes, tile and power-of-two boundaries; normal, uniform and constant edge values."""
    sizes = (1, 7, 13, 16, 31, 33, 63, 65, 127, 128, 129)
    edge = f"constant-{rng.choice(CONSTANTS)}" if rng.random() < 0.8 else "zeros"
    on = needs | _causal(rng, needs)
    return _supported(subject, on), Shape(
        seq_q=rng.choice(sizes),
        seq_k=rng.choice(sizes),
        dim=rng.choice((16, 32, 64, 128)),
        dtype=rng.choice(("fp16", "bf16", "fp32")),
        regime=rng.choice(("normal", "normal", "uniform-01", edge)),
        tile=rng.choice(_TILES),
        pages=rng.choice(_PAGES),
    )


def _gpuemu(rng: Random, subject: str, needs: frozenset[str]) -> tuple[frozenset[str], Shape]:
    """fuzzer.rs: symbolic sizes with boundary values; every input uniform in [-10, 10]; fp32 and fp16."""
    sizes = (1, 3, 7, 33, 64, 128, 129)
    on = needs | _causal(rng, needs)
    return _supported(subject, on), Shape(
        seq_q=rng.choice(sizes),
        seq_k=rng.choice(sizes),
        dim=rng.choice((16, 32, 64, 128)),
        dtype=rng.choice(("fp16", "fp32")),
        regime="uniform-10",
        tile=rng.choice(_TILES),
        pages=rng.choice(_PAGES),
    )


INPUTS: tuple[InputSet, ...] = (
    InputSet("randn", None, _randn),
    InputSet("flash-attention", _FLASH, _flash),
    InputSet("flex", _FLEX, _flex),
    InputSet("gpucheck", None, _gpucheck),
    InputSet("gpuemu", None, _gpuemu),
)
"""The inputs of others; ours are drawn by Hypothesis."""
