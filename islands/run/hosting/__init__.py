"""The runtime of one process on one host, and of its child processes.

Where to find what:

=========================================  =====================
secrets, network, signals, shutdown        `process_runtime.py`
fetching the run's spec from a supervisor  `fetch_run_spec.py`
one request from a non-member              `one_request.py`
the address of a folder's hub              `hub_address.py`
launching and watching child processes     `child_processes.py`
identity of a process beyond its pid       `process_identity.py`
log files of child processes               `process_output.py`
actors that run as tasks of this process   `task_processes.py`
a launcher that starts nothing             `no_launcher.py`
systemd watchdog, event-loop stalls        `watchdog.py`
=========================================  =====================

- `ending_signals.py`: The signals that ask a process of a run to end in order, handled on the …
- `lossy_output.py`: Output that may lose its reader
"""
