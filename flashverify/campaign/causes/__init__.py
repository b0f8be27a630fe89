"""Which failures have which cause: what is remembered of a failure, and what one says of another. Imports no torch."""
