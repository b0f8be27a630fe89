"""Passes of a subject over a case and over problems made from it, and how two passes are compared."""
