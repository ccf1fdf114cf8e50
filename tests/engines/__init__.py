"""Engines: what they are given, what they answer, and real ones where this host has them."""
