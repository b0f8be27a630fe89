"""A finding as one card: what is wrong, where, since when, and how sure that is."""
