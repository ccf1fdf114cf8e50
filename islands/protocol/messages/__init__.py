"""Every message between the roles.

A message is a frozen dataclass (its long tables hold structs, `identities.Compact`), and is decoded
once, where it is received. Reports are cumulative and commands are idempotent, so a message may be
lost, repeated or overtaken by bulk data without harm:

* a **ticket** (syncer epoch, round, name, incarnation) is answered by at most one contribution;
* a **version** (epoch, number) of a fragment is ordered lexicographically and only grows;
* an **incarnation** (supervisor epoch, counter) is given once, at an admission, and never again.

==============  ====================================================================================
module          contents
==============  ====================================================================================
`membership`    messages between members and the supervisor
`training`      messages between learners and the syncer
`peers`         messages between learners, which the hub relays
`gossip`        messages between learners that gossip, over links of their own
`control`       commands of operators, and what members report for the run's folder
`registry`      all message types, and the version of the protocol
==============  ====================================================================================

The docstring of a message says whether it carries a bulk payload; all others are control messages.

- `multihost.py`: Messages between the hosts of one island: rank 0 leads, and the others follow
- `registry.py`: The types of all messages that a link carries, and the version of the protocol
"""
