"""The masks in effect: which pairs of rows and keys enter each output, counted, and the rules that say which are wrong."""
