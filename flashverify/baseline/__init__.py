"""`flashverify-baseline.toml`: failures that are known and stand for a stated reason, and ratios that may not be exceeded."""
