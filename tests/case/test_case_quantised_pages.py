"""Quantised cases with pages, and with q in codes."""

import pytest
import torch

from flashverify import Supports, UsageError, parse_case
from flashverify.case.quantised.codes import CODES
from flashverify.case.quantised.dequantised import dequantised
from flashverify.case.space.fit import fitted
from tests.case.test_case_quantised import PLAIN, problem_of


@pytest.mark.parametrize("quantised", ["e4m3/tensor/fitted/q", "int8/block2/fitted/zeros/q", "e5m2/token/fitted/q"])
def test_a_q_in_codes_stands_for_values_near_its_own_and_moves_neither_k_nor_v(quantised):
    problem, plain = (problem_of(text, "qlen=3,2 padding=nan") for text in (quantised, quantised.removesuffix("/q")))
    found, form = dequantised(problem), CODES[quantised.split("/")[0]]
    inside = (torch.arange(3) < torch.tensor([[3], [2]])).view(2, 1, 3, 1)

    exact, scale = problem.q.double(), found.q_scale
    room = exact.abs() * form.u + scale * form.least / 2 if form.is_float else scale / 2
    assert bool((((found.q - exact).abs() <= room * (1 + 1e-6)) | ~inside).all())
    assert problem.quantised().q.dtype == getattr(torch, form.library)
    assert plain.q_codes is None
    assert plain.quantised().q_scale is None
    for name in ("k_codes", "v_codes", "k_scale", "v_scale"):
        assert torch.equal(getattr(problem, name), getattr(plain, name))
    if "token" in quantised:
        assert bool(torch.isnan(problem.q_scale[1, :, 2]).all())


def test_subjects_are_drawn_a_q_as_they_declare_it():
    def drawn(**fields):
        supports = Supports(backward=False, **fields)
        return {fitted(supports, parse_case(PLAIN), number).quantised for number in range(12)}

    assert not any(how.q for how in drawn(quantised=("int8", "int4")))
    assert {how.q for how in drawn(quantised=("int8",), quantised_q=("values", "codes"))} == {True, False}
    always = drawn(quantised=("int8", "int4"), quantised_q=("codes",))
    assert {(how.q, how.codes) for how in always} == {(True, "int8")}
    with pytest.raises(UsageError, match="quantised_q"):
        Supports(backward=False, quantised=("int4",), quantised_q=("codes",))


@pytest.mark.parametrize("quantised", ["int4/token/varied/zeros", "e4m3/block4/varied", "e5m2/head/fitted"])
def test_pages_hold_the_codes_of_their_keys_and_the_scales_that_serve_them_alone(quantised):
    """Whatever the padding, which is all that lies behind the declared keys and in other pages."""
    problem = problem_of(quantised, "page_size=8 klen=5,11 padding=nan gap=3")
    view = problem.quantised(as_bytes=True)
    pages, per = view.pages, min(view.keys_per_scale, 8)
    held = quantised != "e5m2/head/fitted"

    for name in ("k", "v"):
        codes, pool = getattr(view, name), getattr(pages, name)
        used = torch.zeros(pool.shape[:2], dtype=torch.bool)
        for b, j in ((b, j) for b, length in enumerate((5, 11)) for j in range(length)):
            page, slot = int(pages.table[b, j // 8]), j % 8
            used[page, slot] = True
            assert torch.equal(pool[page, slot], codes[b, :, j])
            for part in ("scale", "zero") if held else ():
                whole, inside = getattr(view, f"{name}_{part}"), getattr(pages, f"{name}_{part}")
                assert (whole is None) == (inside is None)
                assert whole is None or torch.equal(inside[page, slot // per], whole[b, :, j // per])
        assert int(used.sum()) == 16
        assert bool((pool[~used] & 0x7F == 0x7F).all())
        assert (getattr(pages, f"{name}_scale") is not None) == held


def test_pages_of_codes_are_handed_out_in_the_layouts_of_packages_in_the_dtype_of_their_format():
    problem = problem_of("e5m2/head/fitted", "page_size=8")

    found = problem.paged("vllm")

    assert found.key_cache.dtype == torch.float8_e5m2
    assert found.key_cache.data_ptr() == problem.pages.k.data_ptr()


def test_blocks_of_a_drawn_paged_cache_divide_its_pages():
    supports = Supports(
        quantised=("int8",), quantised_scales=("block",), page_sizes=(16, 5), always_paged=True, backward=False
    )

    drawn = [fitted(supports, parse_case(PLAIN), number) for number in range(6)]

    assert {case.storage.page_size for case in drawn} == {16, 5}
    assert all(case.storage.page_size % case.quantised.block == 0 for case in drawn)
