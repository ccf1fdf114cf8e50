"""The runtime of one process on one host, and of its child processes."""
