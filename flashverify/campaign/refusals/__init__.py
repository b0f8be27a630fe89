"""Negative testing: cases that leave a declaration by one property, which a subject must refuse or get right."""
