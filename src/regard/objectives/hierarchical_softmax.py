"""Hierarchical softmax: a word as the decisions on its path through a tree."""

from __future__ import annotations

from torch import Tensor

from regard.layers.huffman import HuffmanTree


def hierarchical_softmax_loss(
    output: HuffmanTree, h_QD: Tensor, rows_P: Tensor, words_P: Tensor
) -> Tensor:
    """The sum of the loss over P words, each predicted from a row of h.

    Mikolov et al. 2013, arXiv:1310.4546, equation 3, for a word w and the vector h that predicts it:
        L = -log p(w | h) = -sum_j log sigmoid(sign_j v'_{n(w, j)} . h)
    The nodes n(w, j) are those on the path from the root of a Huffman tree to w.
    """
    return -output.log_p(h_QD.index_select(0, rows_P), words_P).sum()
