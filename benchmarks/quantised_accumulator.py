"""How many bits a GPU keeps of a sum of fp8 products: one large product and many small ones, in one `tl.dot`.

Row m of A holds 1 at its first place and 2^-m at the others, so that the exact sum is 1 + 31 2^-m for one step of 32. The smallest product
that still counts beside 1 says F; the same for products that are added to an accumulator of 1. It takes seconds.

    python benchmarks/quantised_accumulator.py
"""

import argparse

import torch
import triton
import triton.language as tl

_SMALL = 9
"""e4m3 holds 2^-9 to 1; a product of two numbers 2^-18."""


@triton.jit
def product(a_ptr, b_ptr, c_ptr, out_ptr, K: tl.constexpr):
    i, k = tl.arange(0, 64), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * 64 + i[None, :])
    c = tl.load(c_ptr + i[:, None] * 64 + i[None, :])
    tl.store(out_ptr + i[:, None] * 64 + i[None, :], tl.dot(a, b, c))


def sums(K: int, *, in_accumulator: bool) -> list[tuple[int, float, float]]:
    """(m, exact, computed) of 1 and K - 1 products of 2^-m, the 1 a product or the accumulator."""
    found = []
    for m in range(1, 2 * _SMALL + 1):
        left, right = min(m, _SMALL), m - min(m, _SMALL)
        a, b = torch.full((64, K), 2.0**-left), torch.full((K, 64), 2.0**-right)
        a[:, 0], b[0] = (0.0, 0.0) if in_accumulator else (1.0, 1.0)
        c = torch.full((64, 64), float(in_accumulator))
        a, b = (x.to(torch.float8_e4m3fn).cuda() for x in (a, b))
        out = torch.empty(64, 64, device="cuda")
        product[(1,)](a, b, c.cuda(), out, K)
        exact = (a.double().cpu() @ b.double().cpu() + c.double())[0, 0]
        found.append((m, float(exact), float(out[0, 0])))
    return found


def main() -> None:
    """Print the sums, and the largest m whose products count in full."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=32, help="products of a sum, a power of two from 32")
    chosen = parser.parse_args()
    print(torch.cuda.get_device_name(), triton.__version__)
    for in_accumulator in (False, True):
        found = sums(chosen.keys, in_accumulator=in_accumulator)
        whole = [m for m, exact, computed in found if computed == exact]
        alone = [m for m, _, computed in found if computed > 1.0]
        where = "accumulator" if in_accumulator else "product"
        print(f"beside a {where} of 1: exact up to 2^-{max(whole, default=0)}, seen up to 2^-{max(alone, default=0)}")
        allowed = chosen.keys / 32 * 33 * 2.0**-13
        worst = max(abs(computed - exact) / exact for _, exact, computed in found)
        print(
            f"  largest relative loss {worst:.3g}, bound of docs/bounds.md {allowed:.3g}: {'held' if worst <= allowed else 'BROKEN'}"
        )
        for m, exact, computed in found:
            print(f"  2^-{m}: exact {exact:.9f}, computed {computed:.9f}")


if __name__ == "__main__":
    main()
