"""What the processes of the scheduler's tests do: `Mutant.file` or `CleanTask.inputs` says how they end."""

import json
import os
import signal
import time
from pathlib import Path

from comparison_rules.work import CleanTask


def act(task, path):
    """Writes a line per list; dies by a signal at the list `second`, or hangs at once."""
    how = task.inputs if isinstance(task, CleanTask) else task.mutant.file
    with Path(path).open("a") as lines:
        for name in ("second",) if isinstance(task, CleanTask) else task.lists:
            if how == "hangs":
                time.sleep(600)
            elif name == "second":
                os.kill(os.getpid(), signal.SIGSEGV)
            lines.write(json.dumps({"mutant": task.mutant.name, "inputs": name, "cases": 1, "first": {}}) + "\n")
            lines.flush()
