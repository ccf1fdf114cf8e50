"""The data that a run trains on: virtual shards, sources of records, batches read ahead.

- `arrivals.py`: A folder that new files arrive in
- `batch_source.py`: Where the batches of leased shards come from, one after the other
- `corpus.py`: Python's own standard-library source as a byte corpus
- `documents.py`: The documents of a user's text: files of a folder or a pattern, and lines of JSON
- `prefetch.py`: Batches that a thread of their own reads ahead of the steps
- `prepared.py`: A corpus of tokens on disk
- `read_ahead.py`: Batches that are read ahead in an order that does not depend on the time that …
- `saved_dataset.py`: A dataset of Hugging Face's `datasets` on disk, read like a folder of text
- `shards.py`: Virtual shards: how the records of a pass are divided among shards (protocol §9)
- `streams.py`: Positions in data that can only be read from front to back
- `text.py`: Text at a place, whatever keeps it: files, or a dataset of Hugging Face's on disk
- `token_file.py`: A file of tokens that somebody else made: an array of NumPy, or plain numbers
- `tokenizer.py`: Tokenizers: bytes as they are, or byte pairs learned from the text itself
- `windows.py`: Tokens cut into windows, and windows gathered into batches of one shape
"""
