"""A small transformer trained with a subject's attention, held against float64 at every step (docs/training.md)."""
