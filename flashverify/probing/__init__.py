"""The declaration of a subject worked out by trying: `flashverify probe`."""
