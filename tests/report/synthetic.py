"""Runs made up for the tests of the reports: realistic in shape, deterministic, cheap."""

import math
import random
from pathlib import Path

import msgspec

from flashverify.judge.record import Confirmation, Diagnosis, FindingRecord, Folded, RunRecord, Summary
from flashverify.judge.verdict import CaseResult, Key, OutputStats, Status, Verdict, to_hex
from flashverify.judge.wrong_map import WrongMap

REGIMES = (
    "zeros",
    "integers",
    "normal",
    "tiny",
    "subnormal",
    "large",
    "one-hot",
    "ties",
    "near-ties",
    "outlier",
    "logits-1e3",
    "overflow",
)
MASKS = ("", " causal=top-left", " causal=bottom-right", " causal=bottom-right window=64,0", " klen=7", " tree=-1,0,1")
LEVEL = {"o": 0.45, "lse": 0.06, "delta": 0.2, "dq": 0.3, "dk": 0.35, "dv": 0.5}


def passed(*checks: str) -> tuple[Verdict, ...]:
    return tuple(Verdict(check=c, status=Status.PASS) for c in checks)


def stats(
    output: str, worst: float, index: tuple[int, ...] = (0, 0, 0, 0), mode: str = "end-to-end", **numbers: int
) -> OutputStats:
    return OutputStats(output=output, mode=mode, worst=to_hex(worst), index=index, **({"elements": 1000} | numbers))


def result(case: str = "fv1", subject: str = "kernel", **changes: object) -> CaseResult:
    fields = {"evidence": "interpreter", "verdicts": passed("accuracy"), "stats": (stats("o", 0.25),), "seconds": 0.5}
    return CaseResult(**({"case": case, "subject": subject} | fields | changes))


def failing(
    case: str = "fv1", subject: str = "kernel", output: str = "dq", error: str = "bound", ratio: float = 3.0
) -> CaseResult:
    verdict = Verdict(
        "accuracy", Status.FAIL, output, error, "end-to-end", to_hex(ratio), (0, 0, 0, 0), f"{output} is off"
    )
    return result(case, subject, verdicts=(verdict,), stats=(stats(output, ratio),))


def header(**changes: object) -> RunRecord:
    fields = {
        "kind": "fuzz",
        "subjects": ("kernel",),
        "seed": 7,
        "environment": {"python": "3.11.7", "triton": "3.7.1"},
    }
    return RunRecord(**(fields | {"command": "flashverify fuzz", "started": 1.7e9} | changes))


def finding(subject: str = "kernel", output: str = "dq", **changes: object) -> FindingRecord:
    message = f"{output}[0, 0, 16, 3] is 1.5 where the exact value is 1.25: error 0.25, bound 0.01"
    verdict = Verdict("accuracy", Status.FAIL, output, "bound", "end-to-end", to_hex(25.0), (0, 0, 16, 3), message)
    fields = {
        "key": Key(subject, "accuracy", "bound", output, "fp16"),
        "case": "fv1 seq_q=17 seq_k=1",
        "first": "fv1 batch=2 seq_q=117 seq_k=301 regime=ties seed=7",
        "verdict": verdict,
        "evidence": "interpreter",
        "subject_spec": "my.module:kernel",
        "confirmation": Confirmation(3, 3, "mpmath", to_hex(1.25), to_hex(1.5), to_hex(0.01), True),
        "count": 12,
        "seconds": 71.25,
    }
    return FindingRecord(**(fields | changes))


MAP = WrongMap(
    "o", "row", 64, 1, "head", 4, 1, ("0" * 64, "0" * 40 + "9" * 24, "0" * 64, "0" * 40 + "4" * 12 + "9" * 12)
)


def explained(**changes: object) -> FindingRecord:
    """A finding of which everything is known: diagnosed, with a map, and with other failures of the same cause."""
    sentence = "The causal mask is shifted by one: each row also sees the key after its own, only where Sq > Sk. More is said here."
    diagnosis = Diagnosis(
        "causal-one-key-more",
        sentence,
        place="o: 6 of 16 elements are wrong; the first at [0, 0, 0, 1]; row 0 of 2; right: dv",
        conditions=("seq_q > seq_k",),
        evidence="11 further cases agree, 9 of them clearly",
        form="Form(p='bf16')",
    )
    keys = [
        Key("kernel", check, "bound", output, dtype)
        for check, output, dtype in (("accuracy", "lse", "fp32"), ("accuracy", "dq", "fp16"), ("padding", "o", "bf16"))
    ]
    folded = tuple(
        Folded(key, "fv1 seq_q=9 seq_k=8", f"{key.output} is off", "its minimal case is explained", 5) for key in keys
    )
    return finding(**({"output": "o", "diagnosis": diagnosis, "folded": folded, "first_map": MAP} | changes))


def raised(**changes: object) -> FindingRecord:
    """A finding that is an exception of the subject."""
    trace = 'Traceback (most recent call last):\n  File "kernel.py", line 7, in forward\nValueError: D < 16 & odd'
    verdict = Verdict(
        "exception", Status.FAIL, "ValueError", "exception", message="ValueError: D < 16 & odd", traceback=trace
    )
    key = Key("kernel", "exception", "exception", "ValueError", "fp32")
    return finding(key=key, verdict=verdict, confirmation=Confirmation(), not_minimal="there was no time", **changes)


def write_run(
    path: Path, results=(), findings=(), record: RunRecord | None = None, summary: Summary | bool | None = True
) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_bytes(msgspec.json.encode(record or header()))
    (path / "results.jsonl").write_bytes(b"".join(r.to_json() + b"\n" for r in results))
    for number, found in enumerate(findings):
        folder = path / "findings" / f"finding-{number}"
        folder.mkdir(parents=True)
        (folder / "finding.json").write_bytes(msgspec.json.encode(found))
    if summary is True:
        summary = Summary(len(list(results)), 0, 0, len(list(findings)), 0, 125.5, "budget", 1 if findings else 0)
    if summary:
        (path / "summary.json").write_bytes(msgspec.json.encode(summary))
    return path


def campaign(count: int = 300, seed: int = 0, defects: bool = True) -> list[CaseResult]:
    """Two subjects, three dtypes; the second subject is wrong in dq at long lengths where `defects` asks for it."""
    random_ = random.Random(seed)
    results = []
    for number in range(count):
        subject = ("flashverify.prefill", "my.module:attention")[number % 2]
        dtype = ("fp16", "bf16", "fp32")[number // 2 % 3]
        seq_q, seq_k = (max(1, round(2 ** random_.uniform(0, 9.4))) for _ in range(2))
        mask = random_.choice(MASKS[:4])
        regime = random_.choice(REGIMES)
        text = f"fv1 heads_q=2 seq_q={seq_q} seq_k={seq_k} dim_qk=64 dim_v=64 dtype={dtype}{mask} regime={regime} seed={number}"
        if random_.random() < 0.08:
            reason = random_.choice(("dim_qk=20 is not accepted: a multiple of 8", "page_size is not supported"))
            results.append(
                result(text, subject, verdicts=(Verdict("supports", Status.UNSUPPORTED, message=reason),), stats=())
            )
            continue
        verdicts, found = list(passed("nonfinite", "memory", "padding", "determinism")), []
        broken = defects and subject.startswith("my") and seq_q > 128 and dtype != "fp32" and mask
        for output, level in LEVEL.items():
            for mode in ("end-to-end", "conditional") if output in ("delta", "dq", "dk", "dv") else ("end-to-end",):
                worst = min(0.98, level * random_.lognormvariate(0, 0.35) * (1.6 if dtype == "fp16" else 1))
                if broken and output == "dq":
                    worst = 4 * random_.lognormvariate(0, 1)
                    message = f"dq[0, 1, {seq_q - 1}, 5] is 0.5 where the exact value is 0.25"
                    verdicts.append(Verdict("accuracy", Status.FAIL, "dq", "bound", mode, to_hex(worst), (), message))
                length = seq_k if output in ("dk", "dv") else seq_q
                index = (0, 1, min(length - 1, int(length * random_.random() ** (0.3 if broken else 1))), 5)
                void = 300 if regime == "overflow" else 0
                found.append(
                    stats(
                        output,
                        worst,
                        index[:3] if output in ("lse", "delta") else index,
                        mode,
                        elements=9000,
                        exempt=void,
                    )
                )
        if not any(v.status is Status.FAIL for v in verdicts):
            verdicts.append(Verdict("accuracy", Status.PASS))
        warnings = ("determinism: repeat differs in dk",) if random_.random() < 0.02 else ()
        seconds = math.floor(1e3 * random_.random()) / 1e3
        results.append(
            result(text, subject, verdicts=tuple(verdicts), stats=tuple(found), seconds=seconds, warnings=warnings)
        )
    return results
