"""The shards of a campaign, made one run."""
