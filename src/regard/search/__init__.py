"""Model -> text: greedy and beam search, sampling, and the score of a given target."""
