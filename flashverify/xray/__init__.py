"""Counting: which key entered which row how often, read off a kernel exactly (docs/xray.md).

Importing this package loads nothing else. `measure` reads the masks that are in effect, `difference` compares them with the declared
ones in words, `picture` draws both, `command` is `flashverify xray`.
"""
