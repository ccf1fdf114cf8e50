"""The learner acts: it steps on its own clock, and performs what `protocol/learner` decides.

- `actor.py`: The learner's actor performs what `state.py` decides
- `boundary.py`: A boundary between two steps
- `commands.py`: The commands that wait for a boundary, and how the thread that steps waits for them
- `compute.py`: What drives the engine: the interface, its events, and the thread that owns a device
- `copying.py`: copies from a device to its host, and how many may be in transit
- `engine.py`: The steps of a trainer, whether a device's thread or the virtual clock drives them
- `gossip_port.py`: The effects of gossip: arithmetic off the loop, and messages to neighbours
- `gossip_values.py`: A learner's slow values and momenta on the host
- `inline_compute.py`: The engine on an asyncio loop, usually on the virtual clock
- `moments_checkpoint.py`: Checkpoint of the moments on disk
- `peer_links.py`: Links between learners
- `peers.py`: Transfer of moment pieces: digests and reads from disk are done off the event loop
- `sharing.py`: What an island's other hosts are asked
- `stepped_compute.py`: Compute that is stepped by its caller
"""
