"""Hidden states -> loss."""
