"""The rows of docs/speed.md: what is timed, a file a theme."""
