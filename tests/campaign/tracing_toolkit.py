"""A toolkit whose subject torch traces, pretended: each process compiles for itself, once for each head dim and once more for short keys."""

import time

from compiling_toolkit import DIMS, CompilingToolkit, folder

from flashverify.campaign.protocol import Spent
from flashverify.launching.compilations import NotCompiled
from flashverify.launching.traces import traces


class TracingToolkit(CompilingToolkit):
    def __init__(self):
        self.known = set()

    def spent(self):
        return Spent(compiled=traces.count, compiling=traces.seconds, traced=traces.count)

    def kinds(self, subject):
        return 0, 0

    def traced(self, subject):
        return len(DIMS)

    def rehearse(self, subject, case):
        raise AssertionError("nothing is compiled ahead")

    def judge(self, subject, case, plan):
        self._trace(f"dim-{case.dim_v}{'' if case.seq_k > 16 else '-short'}")
        return super(CompilingToolkit, self).judge(subject, case, plan)

    def _trace(self, key):
        if key in self.known:
            return
        try:
            traces._start()
        except NotCompiled:
            with (folder() / "log").open("a") as log:
                log.write(f"refused {key}\n")
            raise
        finally:
            time.sleep(0.02)
            traces._end()
        self.known.add(key)
        with (folder() / "log").open("a") as log:
            log.write(f"traced {key}\n")


toolkit = TracingToolkit()
