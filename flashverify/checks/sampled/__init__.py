"""Cases too large for an oracle of every row: it judges rows and keys drawn by importance, and relations cover the others (docs/long.md)."""
