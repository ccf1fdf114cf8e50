"""Tasks: the contract between a model with its data and a run, and those that come with islands.

- `decoder_task.py`: What tasks of decoders share
- `factory.py`: Import and call the factory that a run names as `package.module:factory`, whatever …
- `inner_optimizer.py`: The inner optimizers of the tasks that come with the package
- `source_location.py`: Find the line of a user's own file that an error comes from
- `stdlib_bytes.py`: The default task: a byte decoder learns Python's own standard-library source
- `task.py`: A task joins a model to its data; users write one to train a model of their own
- `task_trace.py`: Trace a task's functions by shapes alone and check their outputs, naming the …
- `text.py`: A decoder learns a text of your own: files, lines of JSON, or tokens in a memory map
"""
