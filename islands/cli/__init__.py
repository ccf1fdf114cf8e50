"""The command line: what a user types, and what the terminal shows.

`islands` and its subcommands                  `__main__.py`, `run.py`, `demo.py`, `check.py`,
                                               `control.py`; a hub without learners: `serve.py`

- `chaos.py`: `islands chaos SCENARIO`: injects faults into a run, and judges what came of it
- `check.py`: `islands check package.module:factory`
- `command.py`: Running one command
- `control.py`: `islands control`: an operator's command to the supervisor of a run in progress
- `demo.py`: `islands demo`: a small byte decoder learns Python's own source on three learners
- `dry_run.py`: `--dry-run`
- `evaluate.py`: `islands evaluate RUN`: the figures of the newest published values of a run
- `export.py`: `islands export RUN FILE`
- `generate.py`: `islands generate RUN --prompt TEXT`
- `help_text.py`: The text of `--help`
- `layout.py`: `islands layout MODULE:PARAMS FILE`
- `parsing.py`: Parsing of a command's options
- `plan_screen.py`: A dry run's findings as a table for a terminal of 80 columns
- `plot.py`: `islands plot RUN...`: loss and evaluation of one or several runs in one picture
- `replay.py`: `islands replay RUN`
- `run.py`: `islands run CONFIG`
- `run_status.py`: The status of a run, in the words and numbers that a screen shows
- `schema.py`: The conversion of a dataclass of options to a table of keys
- `screen.py`: The display of a run
- `serve.py`: A hub that starts no learners
- `simulate_bandwidth.py`: `islands simulate bandwidth`
- `simulate_goodput.py`: `islands simulate goodput`: what failing chips leave of a fleet's time
- `simulate_grow.py`: `islands simulate grow`: one run whose learners become many, and few again
- `simulate_regions.py`: `islands simulate regions`
- `simulate_scavenge.py`: `islands simulate scavenge`
- `simulate_uneven.py`: `islands simulate uneven`
- `simulating.py`: What all commands of `islands simulate` share
- `sources.py`: The sources of settings
- `study.py`: `islands study FILE`: which settings train as well as which, at equal tokens
- `tokenizing.py`: `islands tokenize TEXT`
- `yaml_file.py`: Reading of settings in YAML
"""
