"""Defects of heads, groups and channels, and of launches that depend on what they must not depend on."""

from __future__ import annotations

from flashverify.mutants.mutant import Mutant

__all__ = ["HEADS"]

HEADS = (
    Mutant(
        name="group_not_summed",
        file="device/dkdv.py",
        before="for member in range(sizes.group):",
        after="for member in range(1):",
        outputs=("dk", "dv"),
        modelled_on="marin-community/levanter#449: dK and dV of one query head of the group",
        semantics="group-first-member-only",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="do_with_the_channels_of_q",
        file="device/dq.py",
        before="do = load_tile(do_head, i, q_end, sizes.dv8,",
        after="do = load_tile(do_head, i, q_end, sizes.d8,",
        outputs=("dq", "do_view"),
        modelled_on="XunhaoLai/native-sparse-attention-triton#27: the head dimension of q and k used for dO",
        needs=("backward",),
    ),
    Mutant(
        name="sink_of_the_first_head",
        file="device/logits.py",
        before="return _clamp(tl.load(sink_ptr + h) * LOG2_E, _LARGEST)",
        after="return _clamp(tl.load(sink_ptr + h * 0) * LOG2_E, _LARGEST)",
        outputs=("o", "lse", "dq", "dk", "dv", "dsink"),
        modelled_on="HazyResearch/HipKittens#22: a head's number among the wrong heads",
        semantics="sink-first-head",
        needs=("sink",),
    ),
    Mutant(
        name="head_of_k_by_the_group",
        file="device/dq.py",
        before="k_head = head_of(k_view, b, h // sizes.group, k0,",
        after="k_head = head_of(k_view, b, h // (sizes.heads // sizes.group), k0,",
        outputs=("dq", "k_view"),
        modelled_on="PSAL-POSTECH/ONNXim#34: the kv head of a query head by the wrong divisor; nothing to see without groups",
        semantics="head-over-hkv",
        needs=("groups", "backward"),
    ),
    Mutant(
        name="tiles_chosen_by_the_batch",
        file="validation.py",
        before="        resolved[kind] = config\n",
        after="        narrow = max(config.block_n >> (q.shape[0] > 1), 16)\n        resolved[kind] = LaunchConfig(block_m=config.block_m, block_n=narrow, num_warps=config.num_warps, num_stages=config.num_stages)\n",
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="deepseek-ai/FlashMLA#212: the bits of a sequence depend on the sequences beside it",
        needs=("sequences",),
    ),
    Mutant(
        name="tiles_chosen_anew_each_time",
        file="config.py",
        before="config = LaunchConfig(block_m=64, block_n=64)",
        after='calls = vars(launch_config)["calls"] = vars(launch_config).get("calls", 0) + 1\n        config = LaunchConfig(block_m=64, block_n=64 >> calls % 2)',
        outputs=("o", "lse", "dq", "dk", "dv"),
        modelled_on="Dao-AILab/flash-attention bedcbd6a: an autotuner's choice decides the bits of a kernel that promises them",
    ),
)
