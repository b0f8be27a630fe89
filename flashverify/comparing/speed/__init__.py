"""Time and memory of both sides at a few shapes.

`stopwatch` runs in the process of a side, `rounds` takes turns, `times` holds what came out, `speed_words` says it.
"""
