"""The options of the laboratory's commands.

- `cells.py`: entries of a file that are compared, with their sweeps
- `chaos.py`: of `islands chaos SCENARIO`
- `fleets.py`: of the commands of `islands simulate`
- `study.py`: of `islands study FILE`
"""
