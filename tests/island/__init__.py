"""Tests of islands that span several hosts."""
