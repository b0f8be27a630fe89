"""The readers of TTIR, TTGIR and SASS on written examples: what is and what is no hazard."""

import pytest

from flashverify.compiling.cubin import loop_spills, unset_registers
from flashverify.compiling.ttgir import find_layout_hazards
from flashverify.compiling.ttir import find_hazards

HEAD = """#loc = loc("k.py":1:0)
#loc1 = loc("k.py":7:3)
#loc2 = loc("helper.py":3:1)
#loc3 = loc(callsite(#loc2 at #loc1))
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc)), %n: i32 loc("n"(#loc)), %s: i64 loc("s"(#loc))) {
    %c64 = arith.constant 64 : i32 loc(#loc)
    %pid = tt.get_program_id x : i32 loc(#loc)
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32> loc(#loc)
"""
TAIL = "  }\n}\n"


def kinds(body, deterministic=True):
    return [(h.kind, h.where) for h in find_hazards(HEAD + body + TAIL, deterministic=deterministic)]


def test_a_load_with_a_mask_and_no_fill():
    assert kinds("%1 = tt.load %p, %m evictionPolicy = evict_first : tensor<4x!tt.ptr<f32>> loc(#loc1)\n") == [
        ("unfilled-load", "k.py:7")
    ]
    assert kinds("%1 = tt.load %p, %m, %o : tensor<4x!tt.ptr<f32>> loc(#loc1)\n") == []
    assert kinds("%1 = tt.load %p : !tt.ptr<f32> loc(#loc1)\n") == []


def test_a_boundary_check_without_padding():
    assert kinds("%1 = tt.load %p {boundaryCheck = array<i32: 0, 1>} : !tt.ptr<tensor<4xf32>> loc(#loc1)\n") != []
    padded = "%1 = tt.load %p {boundaryCheck = array<i32: 0>, padding = 1 : i32} : !tt.ptr<tensor<4xf32>> loc(#loc1)\n"
    assert kinds(padded) == []


def test_a_runtime_product_is_followed_through_conversions_and_sums_to_its_own_line():
    body = """%1 = arith.muli %pid, %n : i32 loc(#loc3)
    %2 = arith.addi %1, %c64 : i32 loc(#loc)
    %3 = arith.extsi %2 : i32 to i64 loc(#loc)
    %4 = tt.addptr %x, %3 : !tt.ptr<f32>, i64 loc(#loc)
"""
    assert kinds(body) == [("int32-offset", "helper.py:3")]


def test_products_that_are_indices_or_small_are_no_offsets():
    wide = """%1 = arith.muli %pid, %n : i32 loc(#loc1)
    %2 = arith.extsi %1 : i32 to i64 loc(#loc)
    %3 = arith.muli %2, %s : i64 loc(#loc)
    %4 = tt.addptr %x, %3 : !tt.ptr<f32>, i64 loc(#loc)
"""
    constant = """%1 = arith.muli %pid, %c64 : i32 loc(#loc1)
    %4 = tt.addptr %x, %1 : !tt.ptr<f32>, i32 loc(#loc)
"""
    assert kinds(wide) == kinds(constant) == []


def test_a_product_inside_a_loop_over_the_keys():
    body = """%0 = scf.for %i = %c64 to %n step %c64 iter_args(%p = %x) -> (!tt.ptr<f32>)  : i32 {
      %1 = arith.muli %i, %n : i32 loc(#loc1)
      %2 = tt.addptr %p, %1 : !tt.ptr<f32>, i32 loc(#loc)
      scf.yield %2 : !tt.ptr<f32> loc(#loc)
    } loc(#loc)
"""
    assert kinds(body) == [("int32-offset", "k.py:7")]


def test_atomics_matter_where_order_does_and_bits_are_promised():
    add = "%1 = tt.atomic_rmw fadd, acq_rel, gpu, %p, %v, %m : (!tt.ptr<f32>, f32, i1) -> f32 loc(#loc1)\n"
    count = "%1 = tt.atomic_rmw add, acq_rel, gpu, %p, %c64, %m : (!tt.ptr<i32>, i32, i1) -> i32 loc(#loc1)\n"
    ticket = count + "    %2 = tt.addptr %x, %1 : !tt.ptr<f32>, i32 loc(#loc)\n"
    assert kinds(add) == [("atomic", "k.py:7")]
    assert kinds(add, deterministic=False) == []
    assert kinds(count) == []
    assert kinds(ticket) == [("atomic", "k.py:7")]


def test_spills_are_counted_in_innermost_loops_only():
    sass = """
        /*0010*/                   STL [R1], R3 ;
        /*0020*/                   LDL R4, [R1] ;
        /*0030*/                   HGMMA.64x64x16.F32 R24, gdesc[UR28], RZ ;
        /*0040*/                   LDL.LU R5, [R1+0x4] ;
        /*0050*/              @!P0 BRA 0x30 ;
        /*0060*/                   STL [R1], R3 ;
        /*0070*/               @P0 BRA 0x20 ;
        /*0080*/                   BRA 0x80;
"""
    assert loop_spills(sass) == 1


SASS = """
        /*0010*/                   R2UR UR4, R2 ;
        /*0020*/                   ULDC.64 UR6, c[0x0][0x2c0] ;
        /*0030*/                   UIADD3 UR26, UP0, {source}, 0x40, URZ ;
        /*0040*/                   UIADD3.X UR27, UR7, -0x7fffffe0, URZ, UP0, !UPT ;
        /*0050*/                   HGMMA.64x32x16.F32.BF16 R56, R24, gdesc[UR24].tnspB, R56 ;
        /*0060*/              @!UP1 UMOV UR28, UR26 ;
"""


def test_a_uniform_register_that_nothing_sets():
    assert unset_registers(SASS.format(source="UR4")) == ()
    assert unset_registers(SASS.format(source="UR26")) == (("0030", "UIADD3 UR26, UP0, UR26, 0x40, URZ "),)
    assert unset_registers("        /*0010*/                   UISETP.GE.AND UP0, UPT, UR9, 0x1, UPT ;\n") != ()
    assert unset_registers("        /*0010*/                   IMAD R1, R2, UR9, RZ ;\n") == ()


def product(*, version, summed, width):
    """A module with one product, as Triton writes it."""
    operand = f"#ttg.dot_op<{{opIdx = %d, parent = #mma, kWidth = {width}}}>>"
    return f"""#loc1 = loc("k.py":7:3)
#mma = #ttg.nvidia_mma<{{versionMajor = {version}, versionMinor = 0, warpsPerCTA = [1, 4], instrShape = [16, 8]}}>
%z = tt.dot %x, %y, %c : tensor<16x{summed}xf32, {operand % 0} * tensor<{summed}x32xf32, {operand % 1} -> tensor<16x32xf32, #mma> loc(#loc1)
"""


@pytest.mark.parametrize(("summed", "width", "found"), [(16, 8, True), (32, 8, False), (16, 4, False), (8, 4, True)])
def test_a_product_whose_operands_lie_wider_than_it_sums(summed, width, found):
    hazards = find_layout_hazards(product(version=2, summed=summed, width=width))

    assert [(h.kind, h.where) for h in hazards] == ([("narrow-product", "k.py:7")] if found else [])


def test_a_product_from_shared_memory_has_no_such_layout():
    assert find_layout_hazards(product(version=3, summed=16, width=8)) == ()
