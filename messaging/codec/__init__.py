"""The wire format: how envelopes and their payloads become bytes, and are read back."""
