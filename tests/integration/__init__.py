"""Faults of real networks, and links, processes and programs that must live with them."""
