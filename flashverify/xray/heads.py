"""Which head reads which: of every sequence and query head the kv heads that it reads, of every kv head the query heads it sums over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashverify.xray.codes import alternating
from flashverify.xray.gradients import code_launch
from flashverify.xray.reading import cells

if TYPE_CHECKING:
    import torch

    from flashverify.xray.probe import Probe
    from flashverify.xray.reading import Reader

__all__ = ["HeadMap", "read_maps"]

_SEEN = 0.3
"""Least count that tells that a head took part; of the counts that occur none lies between 0.25 and 1/3."""
_LAUNCHES = 8
"""Most launches that one map may take."""
_STEP = 0.25
"""Distance of the logits of two neighbouring heads, where the LSE tells which K was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMap:
    """Who takes part in what.

    Attributes:
        tensor: what was read or summed: `v`, `k`, `dv`, `dq` (k as dQ reads it), `dk` (q as dK sums it).
        readers: axes of the readers: `q` for (sequence, query head), `kv` for (sequence, kv head).
        declared: bool `[readers, sources]`, each numbered sequence by sequence.
        found: bool, the same shape.
    """

    tensor: str
    readers: str
    declared: torch.Tensor
    found: torch.Tensor

    @property
    def wrong(self) -> torch.Tensor:
        """Bool `[readers, sources]`."""
        return self.declared != self.found


def read_maps(probe: Probe, reader: Reader) -> tuple[tuple[HeadMap, ...], list[str]]:
    """The maps, and notes on those that cannot be read."""
    case = probe.case
    if case.storage.expand:
        return (), ["head maps: all heads share the memory of one"]
    sources = max(case.batch * case.heads_q, case.batch * case.heads_kv)
    if sources > _LAUNCHES * min(case.dim_qk, case.dim_v):
        return (), [f"head maps: {sources} heads are too many for {min(case.dim_qk, case.dim_v)} channels"]
    maps, notes = [_map_v(probe, reader)], []
    if reader.count is None or case.logits.softcap is not None or not probe.scale:
        notes.append("head map of k: it takes an LSE, a scale between 2^-12 and 2^12 and no softcap")
    else:
        maps.append(_map_k(probe, reader))
    if probe.has_backward:
        maps.append(_map_dv(probe, reader))
        if probe.scale:
            maps += [_map_dq(probe, reader), _map_dk(probe, reader)]
    return tuple(maps), notes


def _number(probe: Probe, heads: int) -> torch.Tensor:
    """The number of each head of each sequence, `[B, heads]`."""
    import torch

    return torch.arange(probe.case.batch * heads, device=probe.device).view(probe.case.batch, heads)


def _own(probe: Probe, least: int) -> torch.Tensor:
    """Bool `[B, Hq, B, Hkv]`: the kv head of each query head that has a row of at least `least` keys."""
    import torch

    case = probe.case
    number = _number(probe, case.heads_kv)
    own = number.repeat_interleave(case.heads_q // case.heads_kv, 1)
    some = (probe.declared.per_row >= least).any(2)
    hit = (own.unsqueeze(-1) == torch.arange(number.numel(), device=probe.device)) & some.unsqueeze(-1)
    return hit.view(case.batch, case.heads_q, case.batch, case.heads_kv)


def _seen(read: torch.Tensor, outside: torch.Tensor) -> torch.Tensor:
    """Bool `[B, heads, channels]`: whether any row or key of `[B, heads, positions, channels]` shows the channel, or what is no number."""
    return (~(read.abs() < _SEEN) & ~outside).any(2)


def _by_sequence(seen: torch.Tensor, heads: int) -> torch.Tensor:
    """`[B, readers, B * heads]` as `[B, readers, B, heads]`."""
    return seen.reshape(*seen.shape[:2], -1, heads)


def _as_map(tensor: str, readers: str, declared: torch.Tensor, found: torch.Tensor) -> HeadMap:
    return HeadMap(
        tensor=tensor, readers=readers, declared=declared.flatten(0, 1).flatten(1), found=found.flatten(0, 1).flatten(1)
    )


def _map_v(probe: Probe, reader: Reader) -> HeadMap:
    import torch

    case = probe.case
    number, parts = _number(probe, case.heads_kv), []
    for start in range(0, number.numel(), case.dim_v):
        _, forward = probe.forward(v=cells(number - start, case.dim_v).unsqueeze(2) * reader.scaling.value)
        mass, _, _ = reader.incoming(forward)
        read = probe.output(forward) * mass.unsqueeze(-1) / reader.scaling.value
        parts.append(_seen(read, reader.outside_rows))
    found = torch.cat(parts, -1)[..., : number.numel()]
    return _as_map("v", "q", _own(probe, 1), _by_sequence(found, case.heads_kv))


def _map_k(probe: Probe, reader: Reader) -> HeadMap:
    """K is one number a head and Q the same everywhere, so that LSE - log n tells the number of the head that was read."""
    import torch

    case, count = probe.case, reader.count
    assert count is not None
    number = _number(probe, case.heads_kv)
    found = []
    for start in range(0, number.numel(), 64):
        near = (number >= start) & (number < start + 64)
        label = torch.where(near, number - start + 1, 0).double()
        q = torch.tensor(_STEP / probe.scale, dtype=torch.float64).to(probe.dtype).double().to(probe.device)
        step = float(q) * probe.scale
        first = cells(torch.zeros((), dtype=torch.int64, device=probe.device), case.dim_qk)
        _, forward = probe.forward(q=first * q, k=first * label.view(case.batch, case.heads_kv, 1, 1), graded=True)
        read = (probe.keys(probe.mass(forward)) / count.found).log() / step
        nearest = read.round()
        seen = cells((nearest - 1).nan_to_num(-1, -1, -1).long(), min(64, number.numel() - start))
        some = (count.found > 0) & ~reader.outside_rows.squeeze(-1)
        odd = some & ~((read - nearest).abs() <= 0.25)
        hit = ((seen > 0) & some.unsqueeze(-1)) | odd.unsqueeze(-1)
        found.append(hit.any(2))
    joined = _by_sequence(torch.cat(found, -1), case.heads_kv)
    return _as_map("k", "q", _own(probe, 1), joined)


def _longest(probe: Probe) -> torch.Tensor:
    """Float64 `[B, Hq, Sq]`: 1 at the row of each head that sees most keys, where it sees any."""
    per_row = probe.declared.per_row
    return cells(per_row.argmax(2), per_row.shape[2]) * (per_row > 0)


def _summed(probe: Probe, least: int) -> torch.Tensor:
    """Bool `[B, Hkv, B, Hq]`: the query heads that each kv head's gradients sum over."""
    return _own(probe, least).permute(2, 3, 0, 1)


def _map_dv(probe: Probe, reader: Reader) -> HeadMap:
    import torch

    case = probe.case
    number, parts = _number(probe, case.heads_q), []
    for start in range(0, number.numel(), case.dim_v):
        problem, forward = probe.forward()
        _, size, _ = reader.incoming(forward)
        one = (_longest(probe) * size).unsqueeze(-1)
        read = probe.backward(problem, forward, cells(number - start, case.dim_v).unsqueeze(2) * one)["dv"]
        parts.append(_seen(read / reader.scaling.row, reader.outside_keys.transpose(2, 3)))
    found = torch.cat(parts, -1)[..., : number.numel()]
    return _as_map("dv", "kv", _summed(probe, 1), _by_sequence(found, case.heads_q))


def _map_dq(probe: Probe, reader: Reader) -> HeadMap:
    import torch

    case = probe.case
    code = alternating(case, probe.device)
    number, parts = _number(probe, case.heads_kv), []
    for start in range(0, number.numel(), case.dim_qk):
        k = cells(number - start, case.dim_qk).unsqueeze(2) * code.unsqueeze(-1) * reader.amplitude
        found, _, rho = code_launch(reader, code, k=k)
        read = found["dq"] / (rho.unsqueeze(-1) * reader.scaling.row * probe.scale * reader.amplitude)
        parts.append(_seen(read, reader.outside_rows))
    joined = _by_sequence(torch.cat(parts, -1)[..., : number.numel()], case.heads_kv)
    # What a row of the mask can show follows from the mask: the sum of 1 - O V over its keys.
    per_row, mass, total = _totals(probe, reader, code)
    some = (per_row - total * total / mass >= _SEEN).any(2)
    return _as_map("dq", "q", _own(probe, 1) & some[..., None, None], joined)


def _map_dk(probe: Probe, reader: Reader) -> HeadMap:
    import torch

    case = probe.case
    code = alternating(case, probe.device)
    number, parts = _number(probe, case.heads_q), []
    longest = _longest(probe)
    for start in range(0, number.numel(), case.dim_qk):
        q = cells(number - start, case.dim_qk).unsqueeze(2) * longest.unsqueeze(-1) * reader.amplitude
        found, _, _ = code_launch(reader, code, q=q)
        read = found["dk"] / (reader.scaling.row * probe.scale * reader.amplitude)
        parts.append(_seen(read, reader.outside_keys.transpose(2, 3)))
    joined = _by_sequence(torch.cat(parts, -1)[..., : number.numel()], case.heads_q)
    per_row, mass, total = _totals(probe, reader, code)
    # Where all keys of the row have one sign, each shows 1 - n / mass: 0 without a sink.
    largest = torch.where(total.abs() < per_row, 1.0, 1 - per_row / mass)
    shown = (longest * largest).sum(2) >= _SEEN
    return _as_map("dk", "kv", _summed(probe, 1) & shown.view(1, 1, case.batch, case.heads_q), joined)


def _totals(probe: Probe, reader: Reader, code: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of every row of the declared mask: its keys, the sum of its weights with the sink (at least 1), and the sum of the code over its keys."""
    per_row = probe.declared.per_row
    total = probe.declared.sums("keys", probe.case.seq_k, by_key=reader.to_heads(code)).squeeze(-1)
    return per_row, probe.declared_mass.clamp(min=1), total
