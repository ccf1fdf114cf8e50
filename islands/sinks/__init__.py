"""Where the records of a run go beside its own files: TensorBoard, and what others keep of runs.

Each sink is one file, imported when it is asked for. TensorBoard is written by the hub, through the
run's own spool. Every other sink is a process of its own (`--sinks NAME,…`), which reads what the
run's folder holds as it grows: it can neither slow a run nor stop it, and a run that has ended is
sent in the same way (`python -m islands.sinks NAME RUN`).

- `sink.py`: the interface of a sink, and the curves of a row
- `tensorboard.py`, `wandb.py`, `mlflow.py`, `trackio.py`: curves over the run's tokens
- `following.py`: reads a file of a run's folder as it grows, and on from where it was
- `feeding.py`: the hub's side: starts the processes, and relays their sentences
"""
