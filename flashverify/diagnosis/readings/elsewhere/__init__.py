"""Outputs whose wrong elements hold exact values of other places."""
