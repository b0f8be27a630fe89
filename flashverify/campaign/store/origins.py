"""What results are marked with: the batch of a search, or the name of a list of cases."""

__all__ = ["batch_of"]

_BATCH = "batch "


def batch_of(origin: str) -> int | None:
    """The number of the batch that a result is marked with; None where that is a list, or nothing."""
    number = origin.removeprefix(_BATCH)
    return int(number) if number != origin and number.isascii() and number.isdigit() else None
