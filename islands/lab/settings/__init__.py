"""The options of the laboratory's commands.

- `chaos.py`: of `islands chaos SCENARIO`
- `fleets.py`: of the commands of `islands simulate`
- `study.py`: of `islands study FILE`
"""
