"""The settings of the laboratory's commands.

- `changing_fleets.py`: What simulations of changing fleets are told
- `chaos.py`: What a chaos run is told: `islands chaos SCENARIO`
- `goodput.py`: What a simulation of goodput is told: `islands simulate goodput`
- `simulations.py`: What simulations of fleets are told
- `study.py`: What a study is told: `islands study FILE`
"""
