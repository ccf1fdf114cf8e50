"""The files that a run leaves behind, and what is read from them.

- `figures.py`: Figures of a run in progress, and on disk, from which a restarted hub goes on
- `model_files.py`: Files of parameters, as a run writes them and begins from
- `notes.py`: Rate limit of members' notes
- `run_curves.py`: Read the curves of a run from the `metrics.jsonl` of its folder
- `run_folder.py`: Tape, metrics, log, figures
- `pictures.py`: The picture of a run at its end, and that of several runs side by side
- `run_values.py`: Read the newest published values of a run, and its model with them
- `summary.py`: Summary of a finished run, and what to set when the yield is low
- `tape_sentences.py`: Tape entries as sentences for people
"""
