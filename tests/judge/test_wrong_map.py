import pytest
import torch

from flashverify.judge.wrong_map import MOST_ACROSS, MOST_DOWN, wrong_map


def wrong(*shape):
    return torch.zeros(shape, dtype=torch.bool)


def test_a_head_that_is_wrong_is_a_line_of_heads():
    where = wrong(2, 3, 5, 8)
    where[1, 0, 3:] = True
    found = wrong_map("o", where)

    assert (found.across, found.width, found.down, found.height) == ("row", 5, "head", 6)
    assert found.cells == ("00000", "00000", "00000", "00099", "00000", "00000")


def test_channels_that_are_wrong_in_every_head_are_lines_of_channels():
    where = wrong(1, 2, 4, 32)
    where[..., 30:] = True
    found = wrong_map("dk", where)

    assert (found.across, found.down, found.height, found.high) == ("key", "channel", 32, 2)
    assert found.cells == ("0000",) * 15 + ("9999",)


def test_failures_scattered_over_all_channels_are_drawn_over_heads():
    where = wrong(1, 1, 4, 32)
    where[0, 0, 2:] = torch.rand(2, 32, generator=torch.Generator().manual_seed(1)) < 0.7
    where[0, 0, 2] = True
    found = wrong_map("o", where)

    assert (found.down, found.height, found.cells[0][:3]) == ("head", 1, "009")


def test_a_long_output_is_pooled_by_powers_of_two_and_a_single_wrong_element_stays_visible():
    where = wrong(1, 40, 1000)
    where[0, 39, 999] = True
    found = wrong_map("lse", where)

    assert (found.wide, found.high) == (16, 4)
    assert (len(found.cells), len(found.cells[0])) == (10, 63)
    assert len(found.cells) <= MOST_DOWN
    assert len(found.cells[0]) <= MOST_ACROSS
    assert [line.strip("0") for line in found.cells] == [""] * 9 + ["1"]
    assert found.cells[-1].endswith("1")


def test_only_a_cell_whose_every_element_fails_has_the_highest_level():
    where = wrong(1, 1, 128)
    where[..., 1:] = True

    assert wrong_map("lse", where).cells == ("4" + "9" * 63,)


def test_the_gradient_of_a_bias_is_drawn_over_rows_and_keys():
    where = wrong(1, 2, 3, 4)
    where[0, 1, 2, 3] = True
    found = wrong_map("dbias", where)

    assert (found.across, found.down, found.cells) == ("key", "row", ("0000", "0000", "0004"))


@pytest.mark.parametrize(
    ("output", "shape"), [("q", (1, 1, 2, 2)), ("o", (1, 1, 0, 8)), ("o", (1, 2)), ("lse", (1, 1, 2, 2))]
)
def test_what_is_no_output_or_has_another_shape_has_no_map(output, shape):
    assert wrong_map(output, wrong(*shape)) is None


def test_sums_over_rows_are_drawn_along_their_last_axis():
    assert wrong_map("dsink", torch.tensor([True, False])).cells == ("90",)
    assert (found := wrong_map("drelative_bias", torch.tensor([[True, False]] * 2))).cells == ("90", "90")
    assert (found.across, found.down) == ("bucket", "head")
