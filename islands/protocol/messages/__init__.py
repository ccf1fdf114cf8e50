"""Every message between the roles.

A message is a frozen dataclass (its long tables hold structs, `identities.Compact`), and is decoded
once, where it is received. Reports are cumulative and commands are idempotent, so a message may be
lost, repeated or overtaken by bulk data without harm:

* a **ticket** (syncer epoch, round, name, incarnation) is answered by at most one contribution;
* a **version** (epoch, number) of a fragment is ordered lexicographically and only grows;
* an **incarnation** (supervisor epoch, counter) is given once, at an admission, and never again.

The docstring of a message says whether it carries a bulk payload; all others are control messages.
"""
