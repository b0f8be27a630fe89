"""The check `relations`: what one problem's outputs say about another's, or about themselves, whatever the oracle says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashverify.checks.relations.alone import alone
from flashverify.checks.relations.bounded import key_permutation, linear_do, lse_shift, split_merge
from flashverify.checks.relations.exact import appended_keys, chain_tree, double_do, double_v
from flashverify.checks.relations.ground import Ground
from flashverify.checks.relations.oracle_free import ds_sum, lse_in_range, o_in_hull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flashverify.checks.execution import Execution
    from flashverify.judge.verdict import Verdict
    from flashverify.subjects.interface import Subject

    Asked = Callable[[Ground], Iterator[Verdict] | None]

__all__ = ["RELATION_TABLE", "check_relations"]

RELATION_TABLE: dict[str, Asked] = {
    "double-v": double_v,
    "double-do": double_do,
    "appended-keys": appended_keys,
    "chain-tree": chain_tree,
    "alone": alone,
    "key-permutation": key_permutation,
    "split-merge": split_merge,
    "lse-shift": lse_shift,
    "linear-do": linear_do,
    "hull": o_in_hull,
    "lse-range": lse_in_range,
    "ds-sum": ds_sum,
}
"""By name what a relation has to say of a pass: failing verdicts, or None where it does not apply."""


def check_relations(subject: Subject, base: Execution, names: tuple[str, ...]) -> list[Verdict] | None:
    """Asks relations of a pass.

    Args:
        subject: the kernel under test.
        base: the pass.
        names: of relations, from `RELATION_TABLE`.

    Returns:
        Failing verdicts, whose error class is the relation's name; None where none of them applies, as to an empty problem or to
        one with NaN or infinities among its inputs.
    """
    case, ground = base.problem.case, Ground(subject, base)
    if 0 in (case.batch, case.seq_q, case.seq_k) or not ground.finite:
        return None
    answers = [answer for name in names if (answer := RELATION_TABLE[name](ground)) is not None]
    return [verdict for answer in answers for verdict in answer] if answers else None
