"""The learner acts: it steps on its own clock, and performs what `protocol/learner` decides.

- `actor.py`: the learner's actor performs what `state.py` decides
- `boundary.py`: a boundary between two steps
- `commands.py`: the commands that wait for a boundary, and how the thread that steps waits for them
- `compute.py`: the interface of compute, its events, and the thread that owns a device
- `copying.py`: copies from a device to its host, and how many may be in transit
- `engine.py`: the steps of a trainer, whether a device's thread or the virtual clock drives them
- `gossip.py`: the effects of gossip: slow values on the host, and messages to neighbours
- `moments.py`: moments on this host's disk, and to and from peers
- `peer_links.py`: links between learners, and the proof by which a neighbour is admitted
- `stepped_compute.py`: compute that is stepped by its caller
"""
