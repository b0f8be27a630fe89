"""What a later call computes with that belongs to an earlier one, in words: things of the first problem put into the second one's place."""
