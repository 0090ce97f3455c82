"""A Huffman tree over the vocabulary, whose inner nodes have vectors, for hierarchical softmax."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from regard.layers.neighbours import WordCounts


def huffman_codes(counts: Sequence[float]) -> list[list[tuple[int, int]]]:
    """The path of each word from the root of the tree: the inner nodes, numbered from 0, each with 1
    if the path goes on to its left child, and -1 if to its right one.

    Huffman 1952: the two rarest nodes get a common parent, until one node is left. So frequent words
    have short paths.
    """
    words = len(counts)
    heap = [(count, node) for node, count in enumerate(counts)]
    heapq.heapify(heap)
    parents = dict[int, tuple[int, int]]()
    for parent in range(words, 2 * words - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        parents[left[1]] = parent, 1
        parents[right[1]] = parent, -1
        heapq.heappush(heap, (left[0] + right[0], parent))
    codes = []
    for word in range(words):
        path = []
        node = word
        while node in parents:
            node, sign = parents[node]
            path.append((node - words, sign))
        codes.append(path[::-1])
    return codes


class HuffmanTree(WordCounts):
    """The vectors v' of the inner nodes, and the path of each word.

    Mikolov et al. 2013, arXiv:1310.4546, equation 3, with sign_j = 1 if the path of w goes on from
    its j-th node n(w, j) to the left child, and -1 if to the right one, and h the vector v_{w_I}:
        p(w | h) = prod_j sigmoid(sign_j v'_{n(w, j)} . h)
    These V - 1 decisions instead of V words are a distribution: the two children of a node share its
    probability.
    """

    nodes_VK: Tensor
    signs_VK: Tensor

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__(vocabulary_size)
        self.weight = nn.Parameter(torch.zeros(max(1, vocabulary_size - 1), width))
        self.register_buffer("nodes_VK", torch.zeros(vocabulary_size, 0, dtype=torch.long))
        self.register_buffer("signs_VK", torch.zeros(vocabulary_size, 0, dtype=torch.int8))

    def initialise_bias(self, counts_V: Tensor) -> None:
        """Build the tree from how often each word is a target."""
        super().initialise_bias(counts_V)
        codes = [torch.tensor(code).view(-1, 2) for code in huffman_codes(counts_V.tolist())]
        codes_VK2 = pad_sequence(codes, batch_first=True).to(self.nodes_VK.device)
        self.nodes_VK = codes_VK2[..., 0].contiguous()
        self.signs_VK = codes_VK2[..., 1].to(torch.int8)

    def log_p(self, h_PD: Tensor, words_P: Tensor) -> Tensor:
        """log p(w | h), one word for each vector, [P]."""
        v_PKD = F.embedding(self.nodes_VK[words_P], self.weight)
        signs_PK = self.signs_VK[words_P]
        decisions_PK = F.logsigmoid(signs_PK * torch.einsum("pkd,pd->pk", v_PKD, h_PD))
        return (decisions_PK * (signs_PK != 0)).sum(1)

    def forward(self, h: Tensor) -> Tensor:
        """log p(w | h) for every word w: [..., D] -> [..., V]."""
        scores = (h @ self.weight.T)[..., self.nodes_VK]
        return (F.logsigmoid(self.signs_VK * scores) * (self.signs_VK != 0)).sum(-1)
