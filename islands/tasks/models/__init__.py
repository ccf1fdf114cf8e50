"""The decoder that the built-in tasks train.

- `configurations.py`: Decoders by name
- `decoder.py`: A small Gemma-style decoder over bytes, in Flax NNX
- `decoder_config.py`: The shape of a decoder, and how it is computed
- `experts.py`: A mixture of experts in the place of a feed-forward
- `language.py`: A decoder as functions of its parameters
- `parameters.py`: Initial values of parameters, and products with them
"""
