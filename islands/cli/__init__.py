"""The command line: what a user types, and what the terminal shows.

The commands are `__main__.py`, the table of them `commands.py`. To add one is a row there, a
dataclass of its options in `islands.settings.commands`, and its function.

- `chaos.py`: `islands chaos`: injects faults into a run, and judges the result
- `command.py`: Running one command
- `commands.py`: All commands in one table
- `control.py`: `islands control`: an operator's command to the supervisor of a run in progress
- `cost.py`: `islands cost RUN`, and the budget of money that a hub keeps to
- `demo.py`: `islands demo`: a small byte decoder learns Python's own source on three learners
- `dry_run.py`: `--dry-run`: its findings, and their table
- `help_text.py`: The text of `--help`
- `islands_table.py`: The table `islands` in the file of a run
- `newest_values.py`: `islands evaluate`, `islands generate`, `islands export`
- `parsing.py`: Parsing of a command's options
- `plot.py`: `islands plot RUN...`: figures of one or several runs in one picture
- `preparing.py`: `islands check`, `islands tokenize`
- `report.py`: `islands report RUN...`: the page of one or several runs in one file
- `results.py`: The results of a run that has ended
- `run.py`: `islands run CONFIG`
- `schema.py`: The conversion of a dataclass of options to a table of keys
- `screen.py`: The display of a run
- `serve.py`: A hub that starts no learners
- `simulating.py`: `islands simulate FILE`: what failing chips, waiting, links or change cost
- `sources.py`: The sources of settings
- `study.py`: `islands study FILE`: compares settings at equal tokens
- `yaml_file.py`: Reading of settings in YAML
"""
