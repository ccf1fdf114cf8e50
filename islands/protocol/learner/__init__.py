"""The learner's rules: when it may step, what answers a pull, and what an adoption keeps.

- `account.py`: token accounting of one fragment
- `actions.py`: the actions that a learner's state returns; the actor performs them in order
- `answering.py`: answers to pulls, and the seed of a new run
- `events.py`: the events that a learner's state handles
- `learning_rate_clock.py`: the clock of the learning rate between two updates
- `membership.py`: admission, eviction, links that open or break, fencing of old syncers
- `memory.py`: the learner's memory, in parts with one owner each
- `moments_recovery.py`: recovery of the optimizer's moments, and pieces given to a peer
- `own_turns.py`: the schedule of a learner that opens rounds itself
- `pulls.py`: the snapshot that answers a pull
- `reports.py`: figures for the hub, sentences for the terminal
- `schedule.py`: when to step, snapshot and adopt; the default
- `state.py`: handling of an event by all these rules
- `steps.py`: permission to step, reports of compute, adoption
- `synchronous.py`: the schedule of a learner that waits for the fleet's rounds
"""
