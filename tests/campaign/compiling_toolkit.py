"""A toolkit whose kernels are files: a case asks for that of its head dim, and one in some for a second one. Every compilation is noted."""

import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

from fake_toolkit import FakeToolkit
from hypothesis import strategies as st

from flashverify.campaign import environment
from flashverify.campaign.protocol import Spent
from flashverify.case.case import Case
from flashverify.launching.compilations import NotCompiled

DIMS = (8, 16, 24, 32, 40, 48)
USUAL = 3


def folder():
    return Path(os.environ["PRETENDED_KERNELS"])


def keys(subject, case):
    if subject.name == "plain":
        return []
    return [f"dim-{case.dim_v}", *([f"odd-{case.dim_v}"] if case.seq_k % 16 == 3 else [])]


class CompilingToolkit(FakeToolkit):
    only_compiled, rehearsing, compiled = False, None, 0

    def open(self, device, *, plain, numerics):
        environment.gpu = lambda: {"gpu_arch": "sm_90"}
        return contextlib.nullcontext()

    def spent(self):
        return Spent(compiled=self.compiled)

    def kinds(self, subject):
        return USUAL, len(DIMS)

    def traced(self, subject):
        return 0

    def of_kinds(self, subject, kinds):
        sizes = st.integers(1, 64)
        return st.builds(
            Case,
            dtype=st.just("fp16"),
            seq_q=sizes,
            seq_k=sizes,
            dim_v=st.sampled_from([DIMS[kind] for kind in kinds]),
        )

    @contextlib.contextmanager
    def rehearsal(self, capability):
        assert capability == (9, 0)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
        self.rehearsing = SimpleNamespace(count=0)
        yield self.rehearsing

    def rehearse(self, subject, case):
        if subject.name == "breaks-compilers" and case.dim_v == DIMS[0]:
            os._exit(9)
        self._launch(subject, case)
        return ""

    @contextlib.contextmanager
    def compiled_only(self):
        self.only_compiled = True
        try:
            yield
        finally:
            self.only_compiled = False

    def judge(self, subject, case, plan):
        self._launch(subject, case)
        return super().judge(subject, case, plan)

    def _launch(self, subject, case):
        for key in keys(subject, case):
            if self.rehearsing is not None:
                self.rehearsing.count += 1
            if (folder() / key).exists():
                continue
            if self.only_compiled:
                raise NotCompiled(key)
            time.sleep(0.02)
            self.compiled += 1
            part = folder() / f"part-{os.getpid()}"  # a process may be ended while it writes
            part.write_text(str(os.nice(0)))
            part.replace(folder() / f"niceness-{'ahead' if self.rehearsing is not None else 'worker'}")
            with (folder() / "log").open("a") as log:
                log.write(f"{'ahead' if self.rehearsing is not None else 'worker'} {key}\n")
            (folder() / key).touch()


toolkit = CompilingToolkit()
