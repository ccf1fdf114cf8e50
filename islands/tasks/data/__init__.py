"""The data that a run trains on: virtual shards, sources of records, batches read ahead.

- `batch_source.py`: Where the batches of leased shards come from, read ahead or not
- `corpus.py`: Python's own standard-library source as a byte corpus
- `prepared.py`: Tokens on disk: a prepared corpus, or a file that somebody else made
- `shards.py`: Virtual shards: how the records of a pass are divided among shards (protocol §9)
- `text.py`: Text at a place: files, lines of JSON, or a dataset of Hugging Face's on disk
- `tokenizer.py`: Tokenizers: bytes as they are, or byte pairs learned from the text itself
- `windows.py`: Tokens cut into windows, and windows gathered into batches of one shape
"""
