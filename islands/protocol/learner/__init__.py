"""The learner's rules: when it may step, what answers a pull, and what an adoption keeps.

- `account.py`: Token accounting of one fragment
- `actions.py`: The actions that a learner's state returns; the actor performs them in order
- `adaptation.py`: `precision: adaptive`, the precision of answers, and every how many pulls
- `adapting.py`: How a learner's answers follow its link
- `answering.py`: Answers to pulls and seed requests
- `core.py`: The learner's memory
- `donating.py`: Moments given to a restarted peer
- `events.py`: The events that a learner's state handles
- `exchanges.py`: Exchanges of values between neighbours
- `figures.py`: Cumulative step figures of one learner process, for the run's folder on another host
- `fleet_clock.py`: Estimate of the fleet's step count
- `leaving.py`: Graceful shutdown (drain)
- `link_estimate.py`: What a learner's link does with contributions
- `membership.py`: Membership, fencing of old syncers
- `moments.py`: State of a process's own inner moments
- `moments_recovery.py`: Recovery of the optimizer's moments
- `narration.py`: Progress messages on the terminal
- `norm_gate.py`: The limit on how far a neighbour's values may be from the own ones
- `pulls.py`: Which snapshot answers a pull
- `snapshot_copies.py`: How many snapshots may be copied
- `state.py`: Dispatch of events to all these rules
- `synchrony.py`: Where a learner stands still until a merge
- `training.py`: Permission to step, adoption
- `turns.py`: Where a learner opens rounds itself
"""
