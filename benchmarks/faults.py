"""What a campaign loses where its disk fails and its processes die: at every step, and at random moments.

    python benchmarks/faults.py steps [--campaigns search matrix clean] [--roles supervisor worker] [--kinds full error ...] [--stride 1]
    python benchmarks/faults.py kills [--kills 500] [--seed 0]
    python benchmarks/faults.py real [--kills 30] [--seed 0]

`steps` runs short campaigns over toy kernels, once for each call that changes the run folder and each event that a worker sends, with a
fault there (`--kinds` names them), then gives the same command again. `kills` ends such campaigns at random moments, by `kill -9` of the
supervisor or of a worker, or by Ctrl-C. `real` does the same to `flashverify fuzz` over a kernel of torch.

What is stored then is compared with the campaign that nobody disturbed. A row counts the tries in which something was wrong, by what was
wrong: `lost`, planned cases or announced findings that are not stored; `twice`, results or findings beyond them; `refused`, the
repeated command did not end as the undisturbed one; `exit`, another exit code than documented, or a verdict over a part; `message`, a
traceback, or an error without its reason in one line; `damaged`, a half-written record that no fault explains; `left`, temporary files
or notes after the end. Exit code 1 where anything was.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING

from fault_injection.faults import DISK, SUPERVISOR, WORKER
from fault_injection.kills import HOW, random_kills, real_command, toy_command
from fault_injection.model import CAMPAIGNS, COLUMNS, REAL
from fault_injection.processes import warm_up
from fault_injection.rows import every_step, kinds_of, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault_injection.rows import Row


def rows(options: argparse.Namespace) -> Iterator[Row]:
    if options.what == "steps":
        for name in options.campaigns:
            for role in options.roles:
                for kind in kinds_of(role):
                    if kind in options.kinds:
                        yield every_step(CAMPAIGNS[name], role, kind, stride=options.stride, offset=options.offset)
        return
    pick, real = random.Random(options.seed), options.what == "real"
    campaigns = (REAL,) if real else tuple(CAMPAIGNS.values())
    run = real_command if real else toy_command
    share = -(-options.kills // (len(campaigns) * len(HOW)))
    for campaign in campaigns:
        begun = time.monotonic()
        right, _ = undisturbed(campaign, run)
        seconds = time.monotonic() - begun
        for how in HOW:
            yield random_kills(campaign, how, share, pick, (right, seconds), run)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "kills", "real"])
    parser.add_argument("--campaigns", nargs="+", default=[*CAMPAIGNS], choices=[*CAMPAIGNS])
    parser.add_argument("--roles", nargs="+", default=[SUPERVISOR, WORKER], choices=[SUPERVISOR, WORKER])
    parser.add_argument("--kinds", nargs="+", default=[*DISK], choices=[*DISK], metavar="KIND", help=", ".join(DISK))
    parser.add_argument("--stride", type=int, default=1, help="take one step in so many")
    parser.add_argument("--offset", type=int, default=0, help="begin with this step")
    parser.add_argument("--kills", type=int, default=500, help="processes that are ended, in all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warm_up()
    wrong: list[str] = []
    print(f"| campaign | process | fault | tries | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 4) + "|", flush=True)
    for row in rows(options):
        print(row.text, flush=True)
        wrong += row.wrong
    print(*(f"wrong: {line}" for line in wrong), sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
