"""Diagnosis: which wrong semantics explains what a subject returned, in words.

`flashverify.diagnosis.diagnose.diagnose` runs a subject and names one; `flashverify.diagnosis.catalogue.SEMANTICS` lists all.
Importing this package loads no torch.
"""
