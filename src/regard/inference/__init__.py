"""A trained run -> predictions and metrics: a model in memory, inputs in chunks, files of any length
and examples shared among processes."""
