"""The supervisor acts: it performs what `protocol/supervisor` decides."""
