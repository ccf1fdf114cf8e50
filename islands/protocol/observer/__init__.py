"""The observer's rules: it takes what is published, and gives nothing."""
