"""The files that a run leaves behind, and what is read from them.

- `charts.py`: The common look of all pictures, which matplotlib draws
- `export.py`: A run's parameters as one file
- `figures.py`: Figures of a run in progress
- `formatting.py`: Numbers and times for people
- `kept_figures.py`: The figures of a run on disk, from which a restarted hub goes on
- `merge_record.py`: The record of a run's merges
- `notes.py`: Rate limit of members' notes
- `run_curves.py`: Read the curves of a run from the `metrics.jsonl` of its folder
- `run_folder.py`: Tape, metrics, log, figures
- `run_model.py`: The model of a run's newest values
- `run_pictures.py`: The pictures of runs: one of each run at its end, and one of several runs
- `run_values.py`: Read the newest published values of a run
- `summary.py`: Summary of a finished run
- `tape_sentences.py`: Tape entries as sentences for people
- `tensorboard.py`: Curves in TensorBoard
"""
