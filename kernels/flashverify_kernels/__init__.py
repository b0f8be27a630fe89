"""Production attention kernels in Triton: forward and backward, without atomics.

Layers: `device/` holds the Triton code, `launch` allocates and launches (`forward`, `backward`), `autograd` differentiates,
`api` and `varlen` are what is called (`attention`, `attention_varlen`). Every mask is one predicate and one tile schedule, shared by all kernels: a variant is a mask or an address
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

What further terms change, each in fp32:

    softcap, bias, ALiBi, relative   another z, see `device.logits.logits`; with a softcap dS * (1 - tanh^2) before it is rounded
    dbias                            dS before that, summed over broadcast axes, rounded once
    drelative_bias                   dS before that, summed by distance and then by bucket in fp64, rounded once to fp32
    sink s                           after the last tile m, l and acc take one more column exp2(s log2 e - m), without a value
    dsink                            sum of exp2(s log2 e - LSE2) * -delta over rows
    dropout                          acc takes fl_x(keep p), O = acc / (l * fl(1 - p)); dP = keep (dO v^T) * fl(1 / (1 - p));
                                     dV = (fl_x(keep P)^T dO) / fl(1 - p); l, LSE2 and delta as above

Products of fp32 inputs use `precision`: "ieee", "tf32" or "tf32x3".

Names in the kernels: `i` query rows, `j` keys, both numbered within their sequence; `c` channels, `b` batch or packed
sequence, `h` query head, `hk` kv head; `q0`, `k0` first row of a sequence in its tensor, `m0`, `n0` first query and key of a
tile; `sq`, `sk` lengths; `*_end` exclusive limits; `*_view` tensors with their strides, `*_head` the rows of one head, `*_ptr`
pointers; tiles have the literature's names in lower case, `xT` is a transposed tile; CAPITALS are constexpr. What kernels take
is listed in `device.arguments`; strides are in elements.
"""

from flashverify_kernels import library, library_decode  # noqa: F401  they register the operators
from flashverify_kernels.api import attention
from flashverify_kernels.bitmap import Bitmap
from flashverify_kernels.blocks import BlockMask
from flashverify_kernels.config import Configs, LaunchConfig, config_error, launch_config
from flashverify_kernels.decode import decode
from flashverify_kernels.decode_config import decode_splits
from flashverify_kernels.dropout import Dropout
from flashverify_kernels.latent import latent_attention
from flashverify_kernels.launch import backward, forward
from flashverify_kernels.merge import merge
from flashverify_kernels.options import Options
from flashverify_kernels.packed import Packed
from flashverify_kernels.relative import RelativeBias
from flashverify_kernels.results import BackwardResult, ForwardResult
from flashverify_kernels.runtime import supported
from flashverify_kernels.selected import selected_attention
from flashverify_kernels.selection import Selection
from flashverify_kernels.tree import TreeMask
from flashverify_kernels.varlen import attention_varlen

__all__ = [
    "BackwardResult",
    "Bitmap",
    "BlockMask",
    "Configs",
    "Dropout",
    "ForwardResult",
    "LaunchConfig",
    "Options",
    "Packed",
    "RelativeBias",
    "Selection",
    "TreeMask",
    "attention",
    "attention_varlen",
    "backward",
    "config_error",
    "decode",
    "decode_splits",
    "forward",
    "latent_attention",
    "launch_config",
    "merge",
    "selected_attention",
    "supported",
]
