"""Equations that two or more models share: attention, visibility, positions, recurrence, embeddings."""
