"""What a kernel computes, read off its outputs on chosen inputs, in words."""
