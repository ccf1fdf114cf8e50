"""Exchanges between neighbours, without a syncer: who meets whom, and what each does with it."""
