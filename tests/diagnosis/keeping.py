"""Attention in float64 that keeps one thing from call to call, by a key; each a subject of its own."""

import dataclasses

import torch

from flashverify.diagnosis.state.things import THINGS
from flashverify.subjects.interface import Contract, Forward
from tests.diagnosis.planted import Plain

PUT = {thing.name: thing.put for thing in THINGS}


def by_shapes(problem):
    return (problem.q.shape, problem.k.shape, problem.q.dtype)


def by_address(problem):
    return (problem.q.data_ptr(), *by_shapes(problem))


class Keeping(Plain):
    """Right on every first call of its key.

    Args:
        key: of a problem.
    """

    name = "keeping"
    contract = Contract(
        lse_base="e", deterministic=True, gradients=frozenset({"dq", "dk", "dv", "delta", "dbias", "dsink"})
    )

    def __init__(self, key=by_shapes):
        self.key, self.memory = key, {}

    def keep(self, problem, value, name=""):
        """The value of the first call."""
        return self.memory.setdefault((name, self.key(problem)), value)


def a_thing(*names, key=by_shapes, forward=True, backward=True):
    """Fields of the problem are those of the first call, in the passes that are said."""

    class Subject(Keeping):
        def stale(self, problem):
            fields = {n: x.clone() for n in names if isinstance(x := getattr(problem, n, None), torch.Tensor)}
            case = self.keep(problem, problem.case, "case")
            mask = {n: getattr(case.mask, n) for n in names if hasattr(case.mask, n)}
            changes = {n: getattr(case, n) for n in names if n in ("scale", "logits", "dropout", "values")}
            changed = dataclasses.replace(problem.case, mask=dataclasses.replace(problem.case.mask, **mask), **changes)
            return dataclasses.replace(problem, case=changed, **self.keep(problem, fields, "fields"))

        def forward(self, problem):
            kept = self.stale(problem)
            right = super().forward(problem)
            if forward:
                right = super().forward(kept)
            saved = super().forward(kept if backward else problem).saved
            return Forward(right.o, right.lse, saved)

        def backward(self, problem, forward):
            return super().backward(self.stale(problem) if backward else problem, forward)

    return Subject(key)


def an_output(*names, key=by_shapes, added=False):
    """Outputs are those of the first call, or the sum of all calls so far."""

    class Subject(Keeping):
        def of(self, problem, found):
            changed = {}
            for name in names:
                value = getattr(found, name, None)
                if value is not None and added:
                    before = self.memory.get((name, self.key(problem)), torch.zeros_like(value))
                    changed[name] = self.memory[name, self.key(problem)] = before + value
                elif value is not None:
                    changed[name] = self.keep(problem, value.clone(), name)
            return dataclasses.replace(found, **changed)

        def forward(self, problem):
            return self.of(problem, super().forward(problem))

        def backward(self, problem, forward):
            return self.of(problem, super().backward(problem, forward))

    return Subject(key)


def a_step(name, key=by_shapes):
    """A step of the backward, a method of `Plain` that takes and returns it, is that of the first call."""

    class Subject(Keeping):
        def backward(self, problem, forward):
            self.problem = problem
            return super().backward(problem, forward)

    def step(self, value):
        return self.keep(self.problem, value.clone(), name)

    return type("Step", (Subject,), {name: step})(key)


def the_mean_of_k(key=by_shapes):
    """The mean of the keys is subtracted, and that of the first call added to the LSE."""

    class Subject(Keeping):
        def forward(self, problem):
            found = super().forward(problem)
            mean = problem.k.double().mean(2, keepdim=True)
            change = (self.keep(problem, mean, "mean") - mean).repeat_interleave(problem.q.shape[1] // mean.shape[1], 1)
            shift = problem.scale * (problem.q.double() * change).sum(-1)
            return dataclasses.replace(found, lse=(found.lse.double() + shift).float())

    return Subject(key)


def the_page_table(key=by_shapes):
    """K and V are found by the page table of the first call."""

    class Subject(Keeping):
        supports = dataclasses.replace(Plain.supports, page_sizes=(4,))

        def forward(self, problem):
            table = self.keep(problem, problem.pages.table.clone(), "table")
            j = torch.arange(problem.k.shape[2])
            k, v = (x[table.long()[:, j // 4], j % 4].transpose(1, 2) for x in (problem.pages.k, problem.pages.v))
            return super().forward(dataclasses.replace(problem, k=k, v=v))

    return Subject(key)


def the_rest_of_a_larger_problem():
    """O is written to the first elements of one buffer, but for its last row."""

    class Subject(Keeping):
        buffer = torch.zeros(0)

        def forward(self, problem):
            found = super().forward(problem)
            flat = found.o.flatten()
            if self.buffer.numel() < flat.numel():
                self.buffer = flat.clone()
            elif self.buffer.numel() > flat.numel():
                whole = self.buffer[: flat.numel()].clone()
                whole[: -found.o.shape[-1]] = flat[: -found.o.shape[-1]]
                return dataclasses.replace(found, o=whole.view_as(found.o))
            return found

    return Subject()


def gradients_that_add_up():
    """A second backward from one forward adds to the gradients of the first one."""

    class Subject(Keeping):
        def backward(self, problem, forward):
            found = super().backward(problem, forward)
            before = self.memory.get(id(forward.saved))
            self.memory = {id(forward.saved): (forward.saved, found.dq)}
            return found if before is None else dataclasses.replace(found, dq=found.dq + before[1])

    return Subject()


def the_strides_of_q_and_o():
    """Q is read and O is stored by the strides of the first call."""

    class Subject(Keeping):
        def forward(self, problem):
            strides = self.keep(problem, problem.q.stride(), "strides")
            if strides == problem.q.stride():
                return super().forward(problem)
            found = super().forward(dataclasses.replace(problem, q=problem.q.as_strided(problem.q.shape, strides)))
            memory = torch.empty(found.o.numel(), dtype=found.o.dtype)
            memory.as_strided(found.o.shape, strides).copy_(found.o)
            return dataclasses.replace(found, o=memory.as_strided(found.o.shape, problem.q.stride()))

    return Subject()


def the_ds(key=by_shapes):
    """dQ and dK are made of the dS of the first call."""

    class Subject(Keeping):
        def backward(self, problem, forward):
            found = super().backward(problem, forward)
            q, k, v, _, z, _, _, group = forward.saved
            p = (z - forward.lse.double().unsqueeze(-1)).exp()
            ds = p * (problem.do.double() @ v.mT - found.delta.double().unsqueeze(-1))
            ds = self.keep(problem, ds, "ds")
            dq = problem.scale * (ds @ k)
            dk = self.group_sum(problem.scale * (ds.mT @ q), group)
            return dataclasses.replace(found, dq=dq.to(q.dtype).to(found.dq.dtype), dk=dk.to(found.dk.dtype))

    return Subject(key)


def _given_where_missing(name, section, field):
    """A tensor that a problem lacks is the last one that was given for its shapes: of `section.field` of the case."""

    class Subject(Keeping):
        def whole(self, problem):
            value = getattr(problem, name)
            case = self.memory.get(self.key(problem))
            if value is not None:
                self.memory[self.key(problem)] = problem.case, value.clone()
                return problem
            if case is None:
                return problem
            changed = dataclasses.replace(
                getattr(problem.case, section), **{field: getattr(getattr(case[0], section), field)}
            )
            case_now = dataclasses.replace(problem.case, **{section: changed})
            return dataclasses.replace(problem, case=case_now, **{name: case[1]})

        def forward(self, problem):
            return super().forward(self.whole(problem))

        def backward(self, problem, forward):
            return super().backward(self.whole(problem), forward)

    return Subject()


def dlse_where_there_is_none():
    return _given_where_missing("dlse", "grad", "dlse")


def slopes_where_there_are_none():
    return _given_where_missing("slopes", "logits", "alibi")
