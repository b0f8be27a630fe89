"""The words around the tables of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comparison_rules.rules import GPUCHECK, GPUEMU
from comparison_rules.tables import compact, full

if TYPE_CHECKING:
    from comparison_rules.tables import Matrix

__all__ = ["report"]


def report(matrix: Matrix, generated: int = 0) -> str:
    """The whole report."""
    bank = f"a sample of {generated} generated mutants" if generated else "the curated bank"
    command = "python benchmarks/kill_matrix.py" + (f" --generated {generated}" if generated else "")
    tolerances = ", ".join(f"{dtype} {value:g}" for dtype, value in GPUCHECK.items())
    assumed = ", ".join(f"{dtype} {value:g}" for dtype, value in GPUEMU.items())
    return f"""# Kill matrix: which rule finds which planted defect

{len(matrix.mutants)} mutants of the bundled kernels ({bank}) in Triton's interpreter, the same cases and the same outputs judged by the
rules of others and by ours. Written by `{command} --json FILE --markdown FILE`, which can be interrupted and
continued.

{compact(matrix)}
## How it is counted

- Every mutant is given up to {matrix.count} cases that contain the parts without which the changed code is not run, of each kind of
  inputs. Each case is run once; all rules see the same outputs.
- A rule finds a mutant on a case that it rejects, if it accepts the unmutated kernel on that case. A false alarm is a case on
  which it rejects the unmutated kernel.
- An exception, an output of the wrong shape and a process that dies or never ends are found by every rule.
- What separates two rules on the same inputs is the rule; what separates two columns of one rule is the inputs. The sequences of
  our draws are short, so a defect that needs several tiles takes more of them than of a suite's fixed long shapes.
- Mutants that only compiled code shows, and controls, which must stay quiet, are left out.
- All rules profit from this harness: outputs lie in poisoned memory, so an element that is never written is seldom right by
  chance, and accesses out of bounds neither crash nor read plausible neighbours.

## Rules

| rule | what it compares | source |
|---|---|---|
| `allclose` | O and all gradients with fp32 attention rounded to the dtype, atol = rtol = 1e-2; `allclose+lse`: LSE too | common practice |
| `flash-2` | largest error at most 2x (gradients 3x) that of attention computed in the dtype, no LSE; decoding 3x (ALiBi 5x) + 1e-5 | flash-attention `tests/test_flash_attn.py` |
| `flash-3` | 2x (softcap 3x) + 2 max abs(ref + 0.3 - 0.3 - ref), no LSE | flash-attention `hopper/test_flash_attn.py`, `tests/cute/` |
| `flex` | mean error against float64 at most 1.1x (fp32 10x) that of eager FlexAttention, O and gradients; LSE 2e-2 | pytorch `test/inductor/test_flex_attention.py`: `_check_out_and_grad`, `test_logsumexp_correctness` |
| `gpucheck` | O and gradients, atol = rtol by dtype: {tolerances} | gpucheck `assertions/tolerances.py`, as documented |
| `gpuemu` | O with float64 attention rounded to the dtype, absolute: {assumed}; any NaN or Inf in O is rejected | gpuemu `validator.rs`, arXiv 2606.20128 and its companion; fp16 as published, the others assumed |
| `bounds` | every output with its bound, every non-finite value with what is required or allowed | checks `accuracy`, `nonfinite` |
| `flashverify` | all checks of a fuzzed case: padding, memory, sanitizer and determinism too | `Plan.fuzz` |

Of the tolerances that gpuemu leaves open, bf16 is that of fp16 and fp32 the tightest power of ten without a false alarm on its own
inputs. flash-2 and flash-3 say nothing about fp32. Gradients of a bias and of sinks are compared by allclose, flex and gpucheck, though
not every one of their suites does so. References have every option of the case, so no suite is charged with one that it lacks.

## Inputs

| inputs | what they are |
|---|---|
| randn | lengths 64 and 128, with and without a causal mask; options as the mutant needs |
| flash-attention | its lists up to 256 tokens, randn: causal, local, ALiBi, softcap 50 with q times 50, dropout 0.17, GQA, packed sequences of random lengths; the cache tests for decoding |
| flex | one score or mask modification at a time, randn, GQA, unequal lengths, a gradient through LSE |
| gpucheck | its boundary sizes; normal, uniform and constant edge values; options as the mutant needs |
| gpuemu | boundary sizes, every input uniform in [-10, 10]; options as the mutant needs |
| ours | drawn by Hypothesis as in a campaign, without its guidance by results |

Suites' tests of thousands of tokens, of more heads and of larger batches are scaled down; `normal` values are ours (sigma 1.01,
cut at 3.5). NaN and Inf that gpucheck scatters over its inputs are left out: its rule rejects the right answer to them.

{full(matrix)}"""
