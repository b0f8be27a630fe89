"""What a probe asks, a topic a file; `flashverify.probing.survey` says in which order."""
