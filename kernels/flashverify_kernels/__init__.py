"""Production attention kernels in Triton: forward and backward, without atomics.

Layers: `device/` holds the Triton code, `launch` allocates and launches (`forward`, `backward`), `api` adds autograd
(`attention`). Every mask is one predicate and one tile schedule, shared by all kernels: a variant is a mask or an address
map, never another loop.

Numerical form, the same in forward and backward:

    S    = q k^T                     dot product in fp32
    z    = S * fl(scale * log2 e)    the factor computed in float64 and rounded once to fp32; masked: -inf after it
    m    = running max of z          per row, over tiles in ascending order
    p    = exp2(z - m)               fp32; alpha = exp2(m_old - m) rescales what was accumulated
    l    = sum of p                  fp32, unrounded p
    acc  = sum of fl_x(p) v          p rounded once to the input dtype (fp32: not rounded), accumulated in fp32
    O    = acc / l                   once, at the end, then rounded to the output dtype
    LSE2 = m + log2(l)               base 2, fp32; the public LSE is LSE2 * ln 2

    delta = rowsum(dO * O) - dLSE    fp32, from the stored O
    P     = exp2(z - LSE2)           fp32, set to 0 wherever the mask says so
    dP    = dO v^T                   fp32
    dS    = P * (dP - delta)         fp32, rounded once to the input dtype for the two products below
    dQ    = (dS k) * scale           the scale in fp32 after the product, then rounded
    dK    = (dS^T q) * scale         likewise, summed over the query heads of the group in fp32
    dV    = fl_x(P)^T dO             summed likewise

Products of fp32 inputs use `precision`: "ieee", "tf32" or "tf32x3".

Names in the kernels: `i` query rows, `j` keys, `c` channels, `b` batch, `h` query head, `hk` kv head; `m0`, `n0` first
query and key of a tile; `sq`, `sk` lengths; `*_end` exclusive limits; `*_ptr` pointers, `stride_<tensor><axis>` strides in
elements; tiles have the literature's names in lower case, `xT` is a transposed tile; CAPITALS are constexpr.
"""

from flashverify_kernels.api import attention
from flashverify_kernels.config import Configs, LaunchConfig, config_error, launch_config
from flashverify_kernels.launch import BackwardResult, ForwardResult, backward, forward
from flashverify_kernels.runtime import supported
from flashverify_kernels.tree import TreeMask
from flashverify_kernels.validation import Options

__all__ = [
    "BackwardResult",
    "Configs",
    "ForwardResult",
    "LaunchConfig",
    "Options",
    "TreeMask",
    "attention",
    "backward",
    "config_error",
    "forward",
    "launch_config",
    "supported",
]
