"""What is trained on: shards, and sources of records."""
