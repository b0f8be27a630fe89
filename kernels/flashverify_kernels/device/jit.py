import inspect

import triton
import triton.language as tl


def kernel(fn):
    """Compile `fn` as a kernel that never specialises on a runtime value.

    Sizes, strides, lengths and pointer alignment would each multiply the compile keys; what the code may assume about
    them is passed as constexpr flags instead (`EVEN_*`, `ALIGNED`).
    """
    runtime = [p.name for p in inspect.signature(fn).parameters.values() if p.annotation is not tl.constexpr]
    return triton.jit(fn, do_not_specialize=runtime, do_not_specialize_on_alignment=runtime)
