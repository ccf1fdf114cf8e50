"""One run put together, and what it leaves behind.

Where to find what:

=====================================  ============================
supervisor, processes, end: together   `composition.py`
who can finish a run, how it ends      `run_end.py`
the actor of each role                 `roles.py`
starts that are to come after a while  `delayed_starts.py`
all actors in one process              `single_process.py`
a hub: supervisor, folder, and more    `coordinator.py`
a hub with children on one machine     `local_cluster.py`
a folder is taken by one hub           `run_claim.py`
what a run needs, beforehand           `planner.py`
tape, metrics, log, figures            `run_folder.py`
figures while it goes on               `figures.py`
sentences for people                   `tape_sentences.py`
what members may note                  `notes.py`
figures by which one judges            `summary.py`
what to set when the yield is low      `advice.py`
numbers and times as people read them  `formatting.py`
curves in TensorBoard                  `tensorboard.py`, `event_files.py`
`summary.png`                          `picture.py`, `drawing.py`
=====================================  ============================
"""
