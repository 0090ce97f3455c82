// The equations of an attention, as the server computes them (views/worked_attention.py). A score of null belongs to a hidden key.

export function softmax(scores) {
  const seen = scores.filter(score => score !== null), most = Math.max(...seen);
  const powers = scores.map(score => score === null ? 0 : Math.exp(score - most));
  const sum = powers.reduce((one, other) => one + other, 0);
  return powers.map(power => power / sum);
}
// Some attentions multiply the softmax by a factor for each key (a window around a position): what the server's weights
// have beyond the softmax of its scores.
export function factors(scores, weights) {
  const plain = softmax(scores);
  return weights.map((weight, n) => plain[n] > 1e-12 ? weight / plain[n] : 1);
}
export function weightedSum(weights, vectors) {
  const sum = new Array(vectors[0].length).fill(0);
  vectors.forEach((vector, n) => vector.forEach((value, d) => { sum[d] += weights[n] * value; }));
  return sum;
}
