"""A toolkit whose subjects cannot run: their cases raise what their names say."""

from flashverify.judge.verdict import CaseResult, Status, Verdict
from tests.campaign.fake_toolkit import FakeToolkit

RAISED = {
    "no-gpu": ("RuntimeError", "RuntimeError: 0 active drivers ([]). There should only be one."),
    "no-package": ("ModuleNotFoundError", "ModuleNotFoundError: No module named 'flash_attn'"),
    "no-backward": (
        "RuntimeError",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    ),
    "misspelt": ("TypeError", "TypeError: forward() got an unexpected keyword argument 'sm_scale'"),
}


class UnableToolkit(FakeToolkit):
    def judge(self, subject, case, plan):
        kind, message = RAISED[subject.name]
        trace = f"Traceback (most recent call last):\n{message}"
        verdict = Verdict("exception", Status.FAIL, kind, "exception", message=message, traceback=trace)
        return CaseResult(case=str(case), subject=subject.name, evidence="fake", verdicts=(verdict,))


toolkit = UnableToolkit()
