"""The syncer acts: it owns the published fragments, and performs what `protocol/syncer` decides."""
