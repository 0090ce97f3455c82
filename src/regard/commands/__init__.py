"""One command a verb: what the command line reads and prints. A module of ours that needs torch is imported inside."""
