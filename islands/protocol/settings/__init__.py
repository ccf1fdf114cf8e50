"""The settings of a run, which all of its members share, and which of them go together.

To add a setting is a field of its class with its facts and its line under `Args:`, and its use.

- `addresses.py`: Hosts, ports, URLs
- `choices.py`: The choices that a run has by name
- `combinations.py`: Which settings exclude one another, one rule each
- `gossip.py`: Settings of gossip: learners exchange values with neighbours, and no syncer merges
- `outer.py`: The outer optimizer
- `presets.py`: Presets
- `run.py`: Settings that all members of a run agree on
- `setting.py`: Facts about a setting: its range, and who may change, need or see it
"""
