"""The tape: what every actor decided and did, one line after the other, the same in every run.

It is what the history checker judges, what a run's folder shows, and what one reads first when
something went wrong. Its format is public: `docs/tape.md` lists every kind of entry.

Where to find what:

=========================================  =========================
an entry, its stamp, its one form          `entry.py`
every kind there is; a tape read back      `kinds.py`
where entries are written                  `writing.py`
how many of them peers can cause           `entry_limit.py`
of processes, and of who talks to them     `process_entries.py`
of members: who is here, who was ended     `member_entries.py`
of rounds, versions, tokens, the journal   `round_entries.py`
of learners                                `learner_entries.py`
of a simulated world                       `simulation_entries.py`
=========================================  =========================
"""
