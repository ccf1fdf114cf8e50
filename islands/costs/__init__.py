"""The money and the energy of a run, from its records and a file of prices.

- `prices.py`: the file of prices: accelerators, hosts, traffic and energy, by region
- `places.py`: where each learner runs and on what, as an engine's record or the file tells it
- `bill.py`: what was paid, by island and region, for each million merged tokens; pure
- `spent.py`: the bill of a run's folder, and of a hub while it runs
- `budget.py`: a hub ends its run in order when the money is spent
- `bill_table.py`: a bill as a table of 80 columns, and as JSON
"""
