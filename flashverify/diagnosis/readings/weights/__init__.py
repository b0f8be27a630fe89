"""The weights of the forward in effect, read with V one-hot over the keys: logits, row sums, draws, and whose the LSE is."""
