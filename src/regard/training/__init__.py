"""The training loop, optimisers, schedules, memory; and the verbs `train` and `check`."""
