"""What the actors of all roles have in common."""
