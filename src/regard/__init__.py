"""regard: your data -> a trained, measured, explained attention model."""
