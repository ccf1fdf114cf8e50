"""The data that a run trains on: virtual shards, and sources of records."""
