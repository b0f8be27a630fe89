"""Where the warps of a program meet: rings of tiles in shared memory, each slot with a barrier for full and one for empty."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

meet = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # its name in Triton 3.7 and in 3.6


@gluon.jit
def make_barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """`COUNT` barriers, each of which completes a phase after `ARRIVALS` arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for n in gl.static_range(COUNT):
        mbarrier.init(barriers.index(n), ARRIVALS)
    return barriers


@gluon.jit
def make_tiles(tiles, COUNT: gl.constexpr):
    """Room in shared memory for `COUNT` tiles of a descriptor, `[COUNT, ..., rows, channels]`."""
    return gl.allocate_shared_memory(tiles.dtype, [COUNT] + tiles.block_type.shape, tiles.layout)  # noqa: RUF005  Gluon knows no starred list


@gluon.jit
def make_numbers(COUNT: gl.constexpr, SIZE: gl.constexpr):
    """Room in shared memory for `COUNT` times `SIZE` fp32."""
    return gl.allocate_shared_memory(gl.float32, [COUNT, SIZE], gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def fetch(tiles, place, buffer, full):
    """Start to fetch one tile; the barrier `full` completes its phase when the tile is there."""
    mbarrier.expect(full, tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(tiles, place, full, buffer)


@gluon.jit
def release(barrier, there=True):
    """Say that this group of warps has read or written a slot, if there is one; all of its warps are waited for."""
    meet()
    mbarrier.arrive(barrier, count=1, pred=there)


@gluon.jit
def pass_by(slot, phase, full, empty):
    """Release the next tile of a ring unread; the slot and the phase behind it."""
    mbarrier.wait(full.index(slot), phase)
    release(empty.index(slot))
    return following(slot, phase, full.shape[0])


@gluon.jit
def following(slot, phase, STAGES: gl.constexpr):
    """The next slot of a ring, and the phase that it is in."""
    last = slot == STAGES - 1
    return gl.where(last, 0, slot + 1), gl.where(last, phase ^ 1, phase)


@gluon.jit
def matrix(buffer):
    """A tile `[..., rows, channels]` in shared memory as a matrix."""
    return buffer.reshape([buffer.shape[-2], buffer.shape[-1]])
