"""Equations that several models share: attention, its scores, visibility, positions, recurrence,
embeddings."""
