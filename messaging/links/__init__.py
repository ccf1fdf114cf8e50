"""Sessions between actors, independent of the transport."""
