"""One process on one host, and its children.

Where to find what:

=========================================  =====================
secrets, network, signals, end             `process_runtime.py`
asking a supervisor what its run is        `fetch_run_spec.py`
one request of who is no member            `one_request.py`
where the hub of a folder is               `hub_file.py`
children that are started, watched, ended  `child_processes.py`
which process is meant                     `process_identity.py`
what a child writes                        `process_output.py`
actors as processes of this one            `task_processes.py`
a hub that starts none                     `no_launcher.py`
signs of life, stalls of the loop          `watchdog.py`
=========================================  =====================
"""
