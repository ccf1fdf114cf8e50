"""The observer acts: it performs what `protocol/observer` decides."""
