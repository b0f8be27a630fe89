"""Rows of other packed sequences, from which a backward may read."""

import torch

from flashverify.diagnosis.readings.backward.moves import _packed


def test_the_row_of_that_number_is_found_in_the_sequences_beside():
    own = torch.arange(7).view(1, 1, 7)
    place, sequence = torch.tensor([[0, 1, 2, 0, 1, 2, 3]]), torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    found = {move.words: move.number.flatten().tolist() for move in _packed(own, place, sequence, "row")}

    assert found["the row of that number in the packed sequence before"] == [0, 1, 2, 0, 1, 2, 3]
    assert found["the row of that number in the packed sequence behind"] == [3, 4, 5, 3, 4, 5, 6]
