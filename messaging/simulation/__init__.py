"""A virtual world in which actors and links are tested."""
