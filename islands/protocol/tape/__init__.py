"""The tape: the log of all decisions and acts of actors, the same in all simulations of a seed.

The history checker judges it, a run's folder shows it, and it is the first thing to read when
something went wrong. Its format is public: `docs/tape.md` lists every kind of entry.

Where to find what:

=========================================  =========================
an entry, its stamp, its encoding          `entry.py`
all kinds of entries; reading a tape       `kinds.py`
writing a tape                             `writing.py`
rate limit of entries that peers cause     `entry_limit.py`
entries of processes and their peers       `process_entries.py`
entries of membership and sessions         `member_entries.py`
entries of rounds, tokens, the journal     `round_entries.py`
entries of learners                        `learner_entries.py`
entries of a simulated world               `simulation_entries.py`
=========================================  =========================

- `gossip_entries.py`: Entries of learners that gossip: exchanges, and why there was none
"""
