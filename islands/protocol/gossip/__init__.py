"""Exchanges between neighbours, without a syncer: who meets whom, and what each does with it.

- `actions.py`: the actions of a learner that gossips
- `events.py`: the events of a learner that gossips
- `exchanges.py`: exchanges of values between neighbours, and the limit on how far these may be
- `gossip.py`: the gossip schedule: roster, newcomers, rounds, the end of the run
- `pairing.py`: the neighbours of a learner in a round
"""
