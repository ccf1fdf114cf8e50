"""What the actors of all roles share."""
