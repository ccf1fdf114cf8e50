"""The files that a run leaves behind, and what is read from them."""
