"""The decoder that the built-in tasks train.

- `decoder.py`: A small Gemma-style decoder over bytes, in Flax NNX
- `decoder_config.py`: The shape of a decoder, and decoders by name
- `language.py`: A decoder as functions of its parameters
"""
