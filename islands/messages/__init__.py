"""Every message between the roles.

A message is a frozen dataclass (its long tables hold structs, `identities.Compact`), decoded once,
at the edge. Reports are cumulative and commands are
idempotent, so a message may be lost, repeated or overtaken by bulk data without harm:

* a **ticket** (syncer epoch, round, name, incarnation) is answered by at most one contribution;
* a **version** (epoch, number) of a fragment is ordered lexicographically and only grows;
* an **incarnation** (supervisor epoch, counter) is given once, at an admission, and never again.

==============  ====================================================================================
module          who speaks
==============  ====================================================================================
`membership`    members and the supervisor
`training`      learners and the syncer
`peers`         learners among themselves, relayed
`control`       operators, and hosts that tell what they did
`protocol`      all message types, and the version of the protocol
==============  ====================================================================================

Which message carries a bulk payload is said in its docstring; all others are control messages.
"""
