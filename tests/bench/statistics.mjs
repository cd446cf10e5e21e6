// Medians of repeated measurements.

const sorted = (values) => [...values].sort((a, b) => a - b);

export function median(values) {
  const order = sorted(values);
  const middle = order.length / 2;
  return order.length % 2 ? order[Math.floor(middle)] : (order[middle - 1] + order[middle]) / 2;
}

/**
 * The smallest interval between two of the values, of equal ranks from either end, that contains the
 * median of their distribution with a probability of at least `confidence`. The number of values below
 * the median is binomial, whatever the distribution (order statistics). With fewer than six values, all.
 */
export function interval(values, confidence = 0.95) {
  const order = sorted(values);
  const n = order.length;
  let rank = 0;
  let outside = 2 * 0.5 ** n; // the median is below all values, or above
  let choices = 1;
  while (rank + 1 < n / 2) {
    choices = (choices * (n - rank)) / (rank + 1);
    const next = outside + 2 * choices * 0.5 ** n;
    if (next > 1 - confidence) break;
    outside = next;
    rank++;
  }
  return [order[rank], order[n - 1 - rank]];
}
