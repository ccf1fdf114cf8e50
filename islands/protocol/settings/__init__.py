"""The settings of a run, which all of its members share, and which of them go together.

- `addresses.py`: Hosts, ports, URLs
- `combinations.py`: Merge, adoption, anchor; what goes together
- `gossip.py`: Settings of gossip: learners exchange values with neighbours, and no syncer merges
- `learning_rate.py`: The inner learning rate by the clock
- `outer.py`: The outer optimizer
- `patterns.py`: How tensors are spread over fragments, by name; `fragments.py` does it
- `presets.py`: Presets
- `quantities.py`: Amounts in readable units
- `run.py`: What all members of a run agree on
- `turns.py`: Who opens a round, and who gets its value: the settings of asynchronous runs
- `update_precision.py`: How updates travel from the syncer to learners
"""
