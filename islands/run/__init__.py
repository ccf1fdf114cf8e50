"""The composition of one run, and the files that it leaves behind.

Where to find what:

=====================================  ============================
a run composed over any backend        `composition.py`
when a run has ended or failed         `run_end.py`
factories of the roles' actors         `roles.py`
delayed process starts                 `delayed_starts.py`
all actors in one process              `single_process.py`
a hub: supervisor and run folder       `coordinator.py`
a hub with its children on one host    `local_cluster.py`
a hub's exclusive claim on a folder    `run_claim.py`
estimated memory, disk and network     `planner.py`
tape, metrics, log, figures            `run_folder.py`
figures of a run in progress           `figures.py`
tape entries as sentences for people   `tape_sentences.py`
rate limit of members' notes           `notes.py`
summary of a finished run              `summary.py`
what to set when the yield is low      `advice.py`
numbers and times for people           `formatting.py`
curves in TensorBoard                  `tensorboard.py`, `event_files.py`
`summary.png`                          `picture.py`, `drawing.py`
=====================================  ============================
"""
