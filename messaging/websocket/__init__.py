"""Links over websockets, between processes and hosts."""
