"""Kernels as others published them, kept to show what verification finds in them; nothing here is for use."""
