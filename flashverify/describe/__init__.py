"""What a subject declares, what that leaves untested, and cases drawn of it: `flashverify describe`."""
