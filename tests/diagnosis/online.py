"""An online softmax over tiles of keys for planted defects, and other hooks of `planted.Plain`; shares no code with the diagnosis."""

import torch


def online(change):
    """`Plain.output` by a running softmax over tiles; `change(step, alpha, growth)` gives (of the accumulator, of the row sum).

    `step` counts the tiles from 0, of `steps`; alpha = exp(m_old - m_new), growth = m_new - m_old.
    """

    def output(self, o, z, v, lse):
        top = torch.full_like(z[..., :1], -torch.inf)
        acc, total = torch.zeros_like(o), torch.zeros_like(top)
        steps = -(-z.shape[-1] // self.tile)
        for step in range(steps):
            part = z[..., step * self.tile : (step + 1) * self.tile]
            new = torch.maximum(top, part.amax(-1, keepdim=True))
            pivot = torch.where(new == -torch.inf, 0.0, new)
            alpha = torch.where(top == -torch.inf, 0.0, (top - pivot).exp())
            of_acc, of_sum = change(step, steps, alpha, -alpha.log())
            first = top == -torch.inf
            p = (part - pivot).exp()
            total = total * torch.where(first, 0.0, of_sum) + p.sum(-1, keepdim=True)
            acc = acc * torch.where(first, 0.0, of_acc) + p @ v[..., step * self.tile : (step + 1) * self.tile, :]
            top = new
        self.running = (torch.where(top == -torch.inf, 0.0, top) + total.log()).squeeze(-1)
        return acc / torch.where(total == 0, 1.0, total)

    return {"output": output, "lse": lambda self, lse, without_sink: self.running}


def with_logits(**hooks):
    """Hooks that find the logits `[B, Hq, Sq, Sk]` in `self.z`."""

    def output(self, o, z, v, lse):
        self.z = z
        return hooks["output"](self, o, z, v, lse) if "output" in hooks else o

    return {**hooks, "output": output}


def reads(**tensors):
    """A backward over other tensors, each a function of the right one `[B, Hq, ...]` and of the group's size; delta too is of that dO."""
    import dataclasses

    from tests.diagnosis.planted import Plain

    def backward(self, problem, forward):
        saved = dict(zip(("q", "k", "v", "raw", "z", "see", "keep", "group"), forward.saved, strict=True))
        if "do" in tensors:
            problem = dataclasses.replace(problem, do=tensors["do"](problem.do))
        for name in set(tensors) - {"do"}:
            saved[name] = tensors[name](saved[name], saved["group"])
        if {"q", "k"} & set(tensors):
            z = self.scale(problem) * (saved["q"] @ saved["k"].mT)
            saved["raw"], saved["z"] = z, z.masked_fill(~saved["see"], -torch.inf)
        return Plain.backward(self, problem, dataclasses.replace(forward, saved=tuple(saved.values())))

    return {"backward": backward}
