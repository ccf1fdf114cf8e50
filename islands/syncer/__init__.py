"""The syncer acts: it owns the published fragments, and performs what `protocol/syncer` decides.

- `actor.py`: The syncer's actor: messages become events, actions are performed
- `hooks.py`: Callbacks of a syncer into its host
- `inspection_queue.py`: Payloads that arrived and are measured on a worker
- `journal.py`: The journal's records on the disk: what is written, and what a restart reads
- `journal_writer.py`: Recovery and writing on a worker, and what becomes of a disk that fails
- `value_store.py`: The arrays: published values, optimizer state, contributions that wait
- `workers.py`: A worker for each kind of heavy work
"""
