"""A toolkit without torch: subjects are names of behaviours, cases are real cases, judging is a rule on the case."""

import contextlib
import os
import signal
import subprocess
import time

from hypothesis import strategies as st

from flashverify.case.case import REGIMES, Case, Storage, Values
from flashverify.errors import SelfCheckError, SubjectLoadError, UsageError
from flashverify.judge.record import Confirmation, Diagnosis
from flashverify.judge.verdict import CaseResult, OutputStats, Status, Verdict

TRACEBACKS = ("Traceback:\n  <b>line 7</b>\nValueError: no", 'Traceback:\n  File "k.py", line 7, in f\nValueError: no')


class Fake:
    def __init__(self, spec):
        self.name = spec


def defects(behaviour, case):
    """(check, error, output) of every failure."""
    if behaviour == "tail" and case.seq_k >= 17:
        yield ("accuracy", "bound", "o")
    if behaviour == "two":
        if case.seq_k >= 17:
            yield ("accuracy", "bound", "o")
        if case.dim_v >= 24 and case.storage.layout == "bshd":
            yield ("memory", "guard", "dq")
    if behaviour == "everything":
        yield ("accuracy", "bound", "dq")
        yield ("accuracy", "bound", "o")
        yield ("memory", "guard", "dq")
    if behaviour == "in-turns":  # of three failures one a case, so that none has the company of another
        yield (("accuracy", "bound", "dq"), ("accuracy", "bound", "o"), ("memory", "guard", "dq"))[case.seq_q % 3]
    if behaviour.startswith("typed"):
        yield from typed_defects(behaviour, case)
    if behaviour == "half-harness" and case.seq_k >= 17:
        yield ("accuracy", "bound", "o")
    if behaviour == "raises" and case.seq_q > 20:
        yield ("exception", "exception", "ValueError")
    if behaviour == "hostile":
        yield ("../../x", "<script>alert(1)</script>", "'\"")


def typed_defects(behaviour, case):
    """Defects of subjects that take every dtype: a long one in the forward and every gradient, and a second one behind or beside it."""
    long = case.seq_k >= 17
    if long and behaviour in ("typed-one", "typed-named", "typed-beside", "typed-behind"):
        for output in ("o", "lse", "dq", "dk", "dv") if case.grad.backward else ("o", "lse"):
            yield ("accuracy", "bound", output)
        if behaviour == "typed-one":
            yield ("relations", "double-v", "o")
    if long and behaviour == "typed-named" and case.dim_v >= 24:  # what the minimal case has not
        yield ("padding", "padding", "dv")
    if behaviour == "typed-beside" and case.grad.backward and case.dim_v >= 24 and not long:
        yield ("accuracy", "bound", "dk")
    if behaviour == "typed-behind" and case.storage.layout == "bshd" and not long:
        yield ("accuracy", "bound", "o")
    fleeting = case.storage.layout == "bshd" and FakeToolkit.judged > 20  # by what the process did before
    if behaviour == "typed-fleeting-behind" and (long or fleeting):
        yield ("accuracy", "bound", "o")
    if behaviour == "typed-follows" and long:
        yield ("accuracy", "bound", "o")
        if case.grad.backward:
            yield ("accuracy", "bound", "dq")
    if behaviour == "typed-raises" and case.seq_q > 20:
        yield ("exception", "exception", "ValueError")


def first_here():
    """Whether no process has asked this before, in a folder that the test names."""
    try:
        os.mkdir(os.environ["FAKE_FLAG"])
    except FileExistsError:
        return False
    return True


def leave_a_child():
    """A child process that outlives its parent, if it is let."""
    child = subprocess.Popen(["sleep", "600"])
    with open(f"{os.environ['FAKE_FLAG']}/child", "w", encoding="utf-8") as file:
        file.write(str(child.pid))


def wait_for_word(work):
    """Go on when the test has heard that a worker does this; where the test names no folder for what it heard, at once."""
    folder = os.environ.get("FAKE_HEARD")
    while folder and not os.path.exists(f"{folder}/{work}"):
        time.sleep(0.01)


class FakeToolkit:
    judged = 0

    def open(self, device, *, plain, numerics):
        wait_for_word("starting")
        if os.environ.get("CUDA_VISIBLE_DEVICES") == "lost":
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        return contextlib.nullcontext()

    def require_findable(self, spec):
        if spec == "mistyped":
            raise SubjectLoadError(f"subject {spec!r} is not known")

    def load(self, spec):
        if spec == "missing":
            raise SubjectLoadError(f"subject {spec!r} is not known")
        if spec == "dies-at-import":
            os._exit(7)
        return Fake(spec)

    def form(self, subject):
        return f"form of {subject.name}"

    def strategy(self, subject, device, profile=""):
        if subject.name == "tiny":  # a space of fewer cases than a batch
            return st.builds(Case, dtype=st.just("fp16"), seq_q=st.integers(20, 30))
        sizes = st.integers(1, 64)
        typed = subject.name.removeprefix("slow-").startswith("typed")
        return st.builds(
            Case,
            dtype=st.sampled_from(["fp32", "fp16", "bf16"] if typed else ["fp16"]),
            seq_q=sizes,
            seq_k=sizes,
            dim_v=st.sampled_from([8, 16, 24, 32]),
            storage=st.builds(Storage, layout=st.sampled_from(["bhsd", "bshd"])),
            values=st.builds(Values, regime=st.sampled_from(REGIMES), seed=st.integers(0, 2**32)),
        )

    def matrix(self, subject, device):
        return tuple(Case(seq_q=q, seq_k=k) for q in (1, 2, 7, 16, 30) for k in (1, 15, 18, 33))

    def refusal(self, subject, case):
        if subject.name == "tiny" and not (20 <= case.seq_q <= 30 and case == Case(dtype="fp16", seq_q=case.seq_q)):
            return "another case"
        return "seq_q=7" if case.seq_q == 7 else None

    def judge(self, subject, case, plan):
        FakeToolkit.judged += 1
        wait_for_word("judging")
        kind, _, check = plan.partition(":")
        if check == "nonsense":
            raise UsageError("check='nonsense' is not accepted: one of accuracy")
        behaviour = subject.name
        if behaviour == "segfault" and case.seq_q > 40:
            os.kill(os.getpid(), signal.SIGSEGV)
        if behaviour == "exits" and case.seq_q > 40:
            os._exit(3)
        if behaviour == "hangs" and case.seq_q > 40:
            time.sleep(3600)
        if behaviour == "greedy" and case.seq_q > 40:
            self.kept = bytearray(os.urandom(1024)) * (400 * 1024)
            time.sleep(3600)
        if behaviour.startswith("struck") and case.seq_q > 40 and first_here():
            os.kill(os.getpid(), signal.SIGKILL)  # as from outside: the case is right
        if behaviour == "shared" and os.environ["CUDA_VISIBLE_DEVICES"] == "sick":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "forks" and first_here():
            leave_a_child()
        if behaviour == "grows":
            self.kept = (*getattr(self, "kept", ()), os.urandom(1024) * (24 * 1024))
        if behaviour == "tells-mps" and case.seq_q > 40 and first_here():
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "always-dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "harness":
            raise SelfCheckError("the oracle's error is too large")
        if behaviour == "half-harness" and case.seq_q > 20:
            raise KeyError("dq")
        if behaviour.startswith("slow"):
            time.sleep(0.02)
        if behaviour == "chatty":
            print("x" * 100_000, flush=True)
        if behaviour == "refuses":
            verdicts = (Verdict(check="supports", status=Status.UNSUPPORTED, message="never"),)
            return CaseResult(case=str(case), subject=behaviour, evidence="fake", verdicts=verdicts)
        found = [d for d in defects(behaviour.removeprefix("slow-"), case) if kind != "only" or d[0] == check]
        verdicts = tuple(
            Verdict(
                check=c,
                status=Status.FAIL,
                error=e,
                output=o,
                mode="" if not behaviour.startswith("typed-follows") else "end-to-end",
                ratio="0x1.8p+1",
                message="<b>3 > 1</b>",
                traceback=TRACEBACKS[behaviour.startswith("typed")] if c == "exception" else "",
            )
            for c, e, o in found
        )
        verdicts = verdicts or (Verdict(check="accuracy", status=Status.PASS),)
        telling = 0 if behaviour == "tells-nothing" else -1
        stats = (OutputStats("o", "end-to-end", 4, worst=(case.seq_k / 64).hex(), telling=telling),)
        if behaviour.removeprefix("slow-").startswith("typed"):
            outputs = ("lse", "dq", "dk", "dv") if case.grad.backward else ("lse",)
            stats += tuple(OutputStats(output, "end-to-end", 4, telling=-1) for output in outputs)
            if case.grad.backward:
                stats += tuple(OutputStats(output, "conditional", 4) for output in ("dq", "dk", "dv"))
        told = {"tells-gpu": "CUDA_VISIBLE_DEVICES", "tells-mps": "CUDA_MPS_PIPE_DIRECTORY"}
        evidence = os.environ.get(told[behaviour], "none") if behaviour in told else "fake"
        return CaseResult(case=str(case), subject=behaviour, evidence=evidence, verdicts=verdicts, stats=stats)

    def confirm(self, subject, case, verdict):
        wait_for_word("explaining")
        return Confirmation(oracle="mpmath", expected="0x1p+0", got="0x1p+1", bound="0x1p-10", agrees=True)

    def diagnose(self, subject, case, verdict, *, first=None, seconds=10.0, work=None, afresh=None):
        if subject.name.removeprefix("slow-").startswith("typed"):
            named = subject.name.endswith(("-named", "-behind"))
            name = "tail-wrong" if case.seq_k >= 17 else "layout-wrong"
            return Diagnosis(name if named else "", "The tail is wrong.")
        return Diagnosis("scale-missing", "The logits are <not> scaled.", place=f"{verdict.output}: every row")

    def attributed(self, subject, case, verdict, diagnosis):
        if subject.name == "typed-named" and case.storage.layout == "bshd":
            return False  # a semantics that says too little about some cases
        return {"tail-wrong": case.seq_k >= 17, "layout-wrong": case.seq_k < 17}.get(diagnosis.name)

    def repairs(self, subject, case, *, first, seconds):
        return iter(())

    def follows_from_delta(self, subject, case, output):
        return False


toolkit = FakeToolkit()
SPEC = "fake_toolkit:toolkit"
