"""A toolkit without torch: what a mutant does is written in the text that it plants."""

import contextlib
import itertools
import os
import re
import signal
import time
from pathlib import Path

from hypothesis import strategies as st

from flashverify.case.case import Case
from flashverify.judge.record import Diagnosis
from flashverify.judge.verdict import CaseResult, Status, Verdict
from flashverify.mutants import Mutant

PLACE = "_MAX_PROGRAMS = 2**31 - 1\n"


def plant(name, behaviour, **fields):
    """A mutant that behaves as `behaviour` says."""
    text = f"{PLACE}# behaviour: {behaviour}\n"
    fields = {"outputs": (), "modelled_on": behaviour} | fields
    return Mutant(name=name, file="launch.py", before=PLACE, after=text, **fields)


class Planted:
    def __init__(self, name, behaviour):
        self.name, self.behaviour = name, behaviour


class PlantedToolkit:
    def open(self, device, *, plain, numerics):
        return contextlib.nullcontext()

    def load(self, spec):
        if ":" not in spec:
            return Planted(spec, "clean")
        module = Path(spec.partition(":")[0])
        text = (module.parent / module.name.removesuffix("_subject.py") / "launch.py").read_text(encoding="utf-8")
        return Planted(module.name[len("mutant_") : -len("_subject.py")], re.search("# behaviour: (.*)", text)[1])

    def strategy(self, subject, device, profile=""):
        sizes = st.integers(1, 64)
        return st.builds(Case, seq_q=sizes, seq_k=sizes, batch=st.sampled_from([1, 2]))

    def refusal(self, subject, case):
        return None

    def judge(self, subject, case, plan):
        behaviour = subject.behaviour
        found = []
        if behaviour == "long keys" and case.seq_k >= 17:
            found = [("accuracy", "bound", "lse"), ("accuracy", "bound", "o")]
        if behaviour == "segfault" and case.seq_q >= 9:
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "loop":
            for _ in itertools.count():
                time.sleep(0.01)
        if behaviour == "memory":
            self.kept = bytearray(os.urandom(1024)) * (250 * 1024)
            time.sleep(3600)
        if behaviour == "slow":
            time.sleep(0.05)
        if behaviour == "does not compile" or (behaviour == "raises for long keys" and case.seq_k >= 17):
            found = [("exception", "exception", "CompilationError")]
        if behaviour == "wrong everywhere" or (case.seq_q == case.seq_k == 1 and behaviour == "shared"):
            found = [("accuracy", "bound", "o")]
        if subject.name == "bundled-chunked":
            found = [("accuracy", "bound", "o")]
        verdicts = [
            Verdict(check=check, status=Status.FAIL, error=error, output=output, message=f"at {case.seq_k}")
            for check, error, output in found
            if plan in ("fuzz", "run", f"only:{check}") or check == "exception"
        ]
        if behaviour == "harness":
            verdicts = [Verdict(check="harness", status=Status.ERROR, error="self-check", message="a bound is NaN")]
        verdicts = verdicts or [Verdict(check="accuracy", status=Status.PASS)]
        return CaseResult(case=str(case), subject=subject.name, evidence="fake", verdicts=tuple(verdicts))

    def diagnose(self, subject, case, verdict, *, first=None, seconds=10.0, work=None, afresh=None):
        return Diagnosis("keys-past-the-end", "reads on")


toolkit = PlantedToolkit()
SPEC = "planted_toolkit:toolkit"
