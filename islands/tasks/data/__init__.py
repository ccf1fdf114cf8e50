"""The data that a run trains on: virtual shards, sources of records, batches read ahead."""
