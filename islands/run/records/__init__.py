"""The files that a run leaves behind, and what is read from them.

- `charts.py`: The common look of all pictures, which matplotlib draws
- `figures.py`: Figures of a run in progress, and on disk, from which a restarted hub goes on
- `legends.py`: Names of what is drawn: beside lines, in legends, and marks of what befell a run
- `model_files.py`: Files of parameters, as a run writes them and begins from
- `notes.py`: Rate limit of members' notes
- `panels.py`: The panels of a plot of runs: which figure each shows, its lines, marks and units
- `run_curves.py`: Read the curves of a run from the `metrics.jsonl` of its folder
- `run_folder.py`: Tape, metrics, log, figures
- `run_pictures.py`: The picture of a run at its end: its curves, and what each learner did when
- `run_plots.py`: The picture of several runs side by side
- `run_values.py`: Read the newest published values of a run, and its model with them
- `summary.py`: Summary of a finished run, and what to set when the yield is low
- `tape_sentences.py`: Tape entries as sentences for people
"""
