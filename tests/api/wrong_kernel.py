"""A subject whose O is too large by a quarter, and the run of a script that reproduces it."""

import dataclasses

from flashverify.adapters.torch_cpu import TORCH_CPU


class Wrong:
    name = "wrong"
    supports = dataclasses.replace(TORCH_CPU.supports, backward=False)
    contract = TORCH_CPU.contract
    form, device, evidence, backward = TORCH_CPU.form, TORCH_CPU.device, TORCH_CPU.evidence, TORCH_CPU.backward

    def forward(self, problem):
        right = TORCH_CPU.forward(problem)
        return dataclasses.replace(right, o=right.o * 1.25)


WRONG = Wrong()
