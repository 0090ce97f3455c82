"""Equations that two or more models share: attention, scores, visibility, positions, recurrence, embeddings."""
