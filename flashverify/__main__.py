"""`python -m flashverify`."""

from flashverify.cli import main

main()
