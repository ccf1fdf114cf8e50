"""The tape: the log of all decisions and acts of actors, the same in all simulations of a seed.

The history checker judges it, a run's folder shows it, and it is the first thing to read when
something went wrong. Its format is public: `docs/tape.md` lists every kind of entry.
"""
