"""Sheets: worked examples with small fixed numbers, computed by the layers, the tokenizers and the
search that models run, to follow by hand."""
