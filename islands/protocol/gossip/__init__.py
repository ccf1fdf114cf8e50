"""Exchanges between neighbours, without a syncer: who meets whom, and what each does with it.

- `gossip.py`: A learner's memory of gossip beside its exchanges
- `gossip_actions.py`: The actions of a learner that gossips
- `gossip_clock.py`: The clock of the learning rate where learners gossip
- `gossip_events.py`: The events of a learner that gossips
- `gossiping.py`: The rules by which a learner gossips
- `pairing.py`: With whom a learner exchanges values in a round
"""
