"""The distribution of drawn cases: which share of them lies where on each axis, and which pairs of axes meet.

    python benchmarks/drawn_cases.py [--subject bundled] [--device cpu] [--profile cpu|gpu|long] [--cases 2000] [--seed 0] [--json FILE] [--pairs]

Cases are drawn as `flashverify fuzz` draws them, and none is run. A tile is that of the launch values of the case, and 64 by 64 where it has
none. `--pairs` adds the pairs of parts that no case has, and the least covered ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TRITON_INTERPRET", "1")

from flashverify.campaign.toolkit import bundled
from flashverify.campaign.worker.search import draw
from flashverify.case.masks.tree_shapes import shape_of
from flashverify.case.space.profiles import PROFILES
from flashverify.case.space.seen import sees_something
from flashverify.case.space.tile_sizes import USUAL_TILE
from flashverify.case.space.traits import pair_counts, sequences_of, tiles_of, traits_of, trees_of
from flashverify.checks.passes.base_pass import beyond_oracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flashverify.case.case import Case

_LEAST = 15


def shares(values: Iterable[Any], total: int | None = None) -> dict[str, float]:
    """The share of each value in percent, of `total` or of all."""
    counts = Counter(map(str, values))
    total = total or sum(counts.values()) or 1
    return {value: round(100 * count / total, 1) for value, count in sorted(counts.items())}


def sees(case: Case) -> bool:
    """Whether any row sees any key."""
    sizes = {"batch": case.batch, "heads": case.heads_q, "seq_q": case.seq_q, "seq_k": case.seq_k}
    return sees_something(case.mask, **sizes)


def octaves(lengths: Iterable[int]) -> dict[str, float]:
    """The share of lengths up to each power of two and above the one before it, in percent."""
    counts = Counter(1 << (n - 1).bit_length() if n else 0 for n in lengths)
    return {str(end): round(100 * count / counts.total(), 1) for end, count in sorted(counts.items())}


def spread(case: Case) -> str:
    """The longest packed sequence in means of all."""
    rows = [n for n, _ in sequences_of(case)]
    mean = statistics.mean(rows) or 1
    ratio = max(rows) / mean
    return "to 2" if ratio <= 2 else "to 4" if ratio <= 4 else "to 8" if ratio <= 8 else "above 8"


def distribution(drawn: Sequence[Case]) -> dict[str, Any]:
    """Every figure of the drawn cases."""
    tiles = [tiles_of(case) for case in drawn]
    trees = [tree for case in drawn for tree in trees_of(case) if len(tree[0]) >= 4]
    packed = [case for case in drawn if case.mask.packed is not None]
    branching = [n for tree, n in trees if shape_of(tree) in ("single root", "binary", "star")]
    keys = [max((n for _, n in sequences_of(case)), default=0) for case in drawn]
    parts = {part for case in drawn for part in case.mask.parts()}
    of_part = {part: [case for case in drawn if part in case.mask.parts()] for part in sorted(parts)}
    total = len(drawn)
    return {
        "cases": total,
        "key tiles, %": shares(min(n, 3) for _, n in tiles),
        "query tiles, %": shares(min(n, 3) for n, _ in tiles),
        "several tiles both ways, %": shares((m > 1 and n > 1 for m, n in tiles))["True"],
        "no visible pair, %": shares(map(sees, drawn)).get("False", 0.0),
        "longest keys": max(keys),
        "keys, median": statistics.median(keys),
        "keys, residues of 64": len({n % USUAL_TILE for n in keys}),
        "rows up to, %": octaves(case.seq_q for case in drawn),
        "keys up to, %": octaves(case.seq_k for case in drawn),
        "few rows over more than 1024 keys, %": shares(c.seq_q <= 16 and c.seq_k > 1024 for c in drawn).get(
            "True", 0.0
        ),
        "more than 1024 rows and keys, %": shares(min(c.seq_q, c.seq_k) > 1024 for c in drawn).get("True", 0.0),
        "judged by sample, %": shares(map(beyond_oracle, drawn)).get("True", 0.0),
        "rows, residues of 64": len({case.seq_q % USUAL_TILE for case in drawn}),
        "trees of 4 nodes or more": len(trees),
        "shape of these, %": shares(shape_of(tree) for tree, _ in trees),
        "branching from one root, behind a prefix, % of these": shares(n > 0 for n in branching).get("True", 0.0)
        * len(branching)
        / max(len(trees), 1),
        "group, %": shares(case.heads_q // case.heads_kv for case in drawn),
        "softcap, % of those with one": shares(case.logits.softcap for case in drawn if case.logits.softcap),
        "head dim of q, %": shares(case.dim_qk for case in drawn),
        "blocks, % of those with some": shares(
            next((name for name in ("butterfly", "sliding") if getattr(case.mask.blocks, name, 0)), "random")
            for case in drawn
            if case.mask.blocks
        ),
        "packed sequences, %": shares(min(len(case.mask.packed.lengths()), 16) for case in packed if case.mask.packed),
        "longest packed sequence, in means, %": shares(spread(case) for case in packed if len(sequences_of(case)) > 1),
        "one query, cases of each part": {part: sum(c.seq_q == 1 for c in found) for part, found in of_part.items()},
        "one key, cases of each part": {part: sum(c.seq_k == 1 for c in found) for part, found in of_part.items()},
        "regime, fewest and most": [
            min(Counter(case.values.regime for case in drawn).values()),
            max(Counter(case.values.regime for case in drawn).values()),
        ],
        "launch, %": shares(bool(case.launch) for case in drawn).get("True", 0.0),
        "backward, %": shares(case.grad.backward for case in drawn).get("True", 0.0),
        "pairs, rows times keys times heads, mean": round(
            statistics.mean(c.batch * c.heads_q * c.seq_q * c.seq_k for c in drawn)
        ),
    }


def pairs_text(drawn: Sequence[Case]) -> list[str]:
    """The pairs of values that meet least, those that do not meet at all first."""
    counts = pair_counts(map(traits_of, drawn))
    single = Counter(trait for case in drawn for trait in traits_of(case))
    names = sorted(single)
    wanted = [(a, b) for n, a in enumerate(names) for b in names[n + 1 :] if a[0] != b[0] or a[0] == "part"]
    never = [pair for pair in wanted if not counts[pair]]
    rare = sorted((pair for pair in wanted if counts[pair]), key=lambda pair: counts[pair])[:_LEAST]
    lines = [f"{len(wanted)} pairs of values, {len(never)} of them in no case"]
    lines += [f"  never  {' '.join(a)}, {' '.join(b)}" for a, b in never]
    return lines + [f"  {counts[a, b]:5}  {' '.join(a)}, {' '.join(b)}" for a, b in rare]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", default="bundled", help="as `flashverify fuzz` takes it")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--profile", default="", choices=PROFILES, help="by default that of the device")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--pairs", action="store_true")
    options = parser.parse_args()
    strategy = bundled.strategy(bundled.load(options.subject), options.device, options.profile)
    drawn = draw(strategy, options.cases, options.seed)
    found = distribution(drawn)
    for name, value in found.items():
        print(f"{name}: {value}")
    if options.pairs:
        print("\n".join(pairs_text(drawn)))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
