"""The loop on one screen, optimisers, schedules, validation."""
