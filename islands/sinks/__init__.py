"""Where the records of a run go beside its own files: TensorBoard, and what others keep of runs.

Each sink is one file, imported when it is asked for. TensorBoard is written by the hub, through the
run's own spool. Every other sink is a process of its own (`--sinks NAME,…`), which reads what the
run's folder holds as it grows: it can neither slow a run nor stop it, and a run that has ended is
sent in the same way (`python -m islands.sinks NAME RUN`).
"""
