"""Block designs, and the search for their codes: block scales, error feedback along rows (GPTQ).

A Trellis is a bitshift trellis: each column has `bits` new bits, and its table entry is chosen by
these and by the last `memory` bits of the columns before it. Without memory it is a grid of levels.
Tables are fitted to normally distributed values, so a design is the same for every model, and
rounded to int8, as kernels would hold them.
"""
import math

import torch

SUPER = 256  # values whose block scales share one f16
STRIDE = 32  # columns between which errors are fed back by one matrix multiplication
DAMPING = 0.1  # of the mean of the diagonal, as in src/convert/gptq.cpp
ROUNDS = 3
STRETCHES = torch.linspace(0.7, 1.3, 7)  # scales to try, relative to the values' root mean square


class Factors:
    """H = M D M^T with M unit upper triangular and D diagonal.

    The error e of a row costs e H e^T. So column i is best quantized to the value nearest to
    x_i + sum_{k<i} e_k M_ki. Without feedback only H's diagonal counts, and M is 1. Everything is
    for several H at once, hessians [sets, cols, cols]; each has as many rows as the others.
    """

    def __init__(self, hessians, feedback):
        diagonal = hessians.diagonal(dim1=1, dim2=2)
        diagonal = diagonal + DAMPING * diagonal.mean(1, keepdim=True)
        damped = hessians.clone() if feedback else torch.zeros_like(hessians)
        damped.diagonal(dim1=1, dim2=2).copy_(diagonal)
        self.root = torch.linalg.cholesky(damped.flip(1, 2)).flip(1, 2).float()  # H = R R^T
        own = self.root.diagonal(dim1=1, dim2=2)
        self.feedback, self.weights = self.root / own[:, None], own * own

    def by_set(self, rows):
        sets = len(self.root)
        return rows.reshape(sets, rows.shape[:-1].numel() // sets, rows.shape[-1])

    def row_weights(self, rows):
        return self.weights.repeat_interleave(rows // len(self.weights), 0)

    def cost(self, errors):
        return (self.by_set(errors) @ self.root).pow(2).sum(2).flatten()


class Trellis:
    """`block` values share a scale of `scale_bits`, which multiplies an f16 of 256 values."""

    def __init__(self, name, bits, memory, block, scale_bits, steps):
        self.before, self.new = 2 ** memory, 2 ** bits  # a state is (bits before, new bits)
        self.name, self.block, self.scale_bits, self.steps = name, block, scale_bits, steps
        self.bits_per_weight = bits + scale_bits / block + 16 / SUPER
        self.table = self.fitted_table()

    def stored(self, scale, super_scale=None):
        """Scales [rows, blocks of a row] as the file would hold them."""
        whole = scale.view(len(scale), -1, SUPER // self.block)
        if super_scale is None:
            super_scale = whole.amax(2, keepdim=True) / (2 ** self.scale_bits - 0.5)
            super_scale = super_scale.half().float().clamp(min=2.0 ** -24)
        codes = (whole / super_scale).floor().clamp(0, 2 ** self.scale_bits - 1)
        return ((codes + 0.5) * super_scale).view_as(scale), super_scale

    def fit_scales(self, targets, weights):
        """The scale of each block that costs least, [rows, blocks of a row]."""
        x = targets.reshape(-1, self.block)
        w = weights.reshape(-1, self.block)
        mean = ((w * x * x).sum(1) / w.sum(1)).sqrt().clamp(min=1e-8)
        wanted = self.cheapest(x, w, [mean * stretch for stretch in STRETCHES])
        stored, super_scale = self.stored(wanted.view(len(targets), -1))
        step = super_scale.expand(-1, -1, SUPER // self.block).reshape(stored.shape)
        others = [self.stored(stored + step * by, super_scale)[0].flatten() for by in (-1, 0, 1)]
        return self.cheapest(x, w, others).view_as(stored)

    def cheapest(self, x, w, scales):
        costs = torch.stack([self.block_cost(x, w, scale) for scale in scales])
        chosen = costs.argmin(0, keepdim=True)
        return torch.stack(scales).gather(0, chosen)[0]

    def refit_scales(self, targets, weights, units):
        """The least-squares scale for the table entries [rows, cols] that were chosen."""
        blocks = lambda of: (weights * of * units).view(len(units), -1, self.block).sum(2)
        scale = blocks(targets) / blocks(units).clamp(min=1e-12)
        return self.stored(scale.clamp(min=0))[0]

    def first_table(self):
        """Quantiles. Levels of the same new bits are neighbours: the bits before choose one."""
        reverse = [int(format(p, "b").zfill(self.before.bit_length() - 1)[::-1] or "0", 2)
                   for p in range(self.before)]
        rank = torch.arange(self.new) * self.before + torch.tensor(reverse)[:, None]
        share = (rank + 0.5) / (self.new * self.before)
        return math.sqrt(2) * torch.erfinv(2 * share - 1)

    def fitted_table(self):
        """[before, new], fitted by turns: codes for the table, scales for the codes, the table."""
        x = torch.randn(128, SUPER, generator=torch.Generator().manual_seed(1))
        self.table = self.first_table()
        scale = torch.ones_like(x)
        for _ in range(12):
            states = self.states(x, scale, Factors(torch.eye(SUPER).double()[None], False))
            units = self.table.flatten()[states]
            blocks = lambda of: (of * units).view(-1, STRIDE).sum(1)
            scale = (blocks(x) / blocks(units)).repeat_interleave(STRIDE).view_as(x)
            sums = torch.zeros(2, self.table.numel())
            sums[0].index_add_(0, states.flatten(), (x * scale).flatten())
            sums[1].index_add_(0, states.flatten(), (scale * scale).flatten())
            fitted = sums[0] / sums[1].clamp(min=1e-9)
            fitted = torch.where(sums[1] > 0, fitted, self.table.flatten())
            self.table = fitted.view(self.before, self.new)
        unit = self.table.abs().max() / 127
        return (self.table / unit).round() * unit

    def step(self, cost, target, weight, scale):
        """Viterbi's step: `cost` [rows, before] becomes that of the best states, [rows, before]."""
        miss = target[..., None] - scale[:, None, None] * self.table
        total = cost[..., None] + weight * miss * miss
        return total.view(len(cost), self.new, self.before).min(1)

    def block_cost(self, x, w, scale):
        cost = torch.zeros(len(x), self.before)
        for j in range(x.shape[1]):
            cost, _ = self.step(cost, x[:, j, None], w[:, j, None, None], scale)
        return cost.min(1).values

    def states(self, x, scale, factors):
        """The states of rows x [rows, cols]. Each survivor of Viterbi's has errors of its own."""
        n, cols = x.shape
        cost = torch.full((n, self.before), math.inf)
        cost[:, 0] = 0
        row, all_before = torch.arange(n)[:, None], torch.arange(self.before)
        weights = factors.row_weights(n)
        past = torch.zeros(n, self.before, cols)
        chosen = torch.empty(cols, n, self.before, dtype=torch.uint8)
        for first in range(0, cols, STRIDE):
            last = first + STRIDE
            fed = factors.by_set(past[..., :first]) @ factors.feedback[:, :first, first:last]
            base = x[:, None, first:last] + fed.view(n, self.before, STRIDE)
            origin = all_before.expand(n, -1)
            recent = torch.zeros(n, self.before, STRIDE)
            for j in range(first, last):
                fed = factors.by_set(recent[..., : j - first]) @ factors.feedback[:, first:j, j: j + 1]
                target = base[row, origin, j - first] + fed.view(n, self.before)
                cost, high = self.step(cost, target, weights[:, j, None, None], scale[:, j])
                chosen[j], state = high, high * self.before + all_before
                parent = state // self.new
                origin, recent = origin.gather(1, parent), recent[row, parent]
                units = self.table.flatten()[state]
                recent[..., j - first] = x[:, j, None] - scale[:, j, None] * units
            past = past[row, origin]
            past[..., first:last] = recent
        states, at = torch.empty(n, cols, dtype=torch.long), cost.argmin(1)
        for j in reversed(range(cols)):
            states[:, j] = chosen[j, row[:, 0], at].long() * self.before + at
            at = states[:, j] // self.new
        return states

    def units(self, x, scale, factors):
        return self.table.flatten()[self.states(x, scale, factors)]


def quantized(rows, hessians, design, feedback):
    """The values of `rows` [sets, n, cols] in a design, for inputs with these second moments."""
    factors = Factors(hessians, feedback)
    shape, rows = rows.shape, rows.flatten(0, 1)
    weights = factors.row_weights(len(rows))
    scale = design.fit_scales(rows, weights)
    best, least = rows, torch.full((len(rows),), math.inf)
    for _ in range(ROUNDS):
        each = scale.repeat_interleave(design.block, 1)
        units = design.units(rows, each, factors)
        values = each * units
        cost = factors.cost(rows - values)
        best = torch.where((cost < least)[:, None], values, best)
        least = torch.minimum(cost, least)
        # What each column should have been, after the errors before it.
        targets = values + (factors.by_set(rows - values) @ factors.feedback).flatten(0, 1)
        scale = design.refit_scales(targets, weights, units)
    return best.view(shape)


# `steps`: SIMD instructions of 128 bits that make 16 int8 values of their codes. A column's bits
# before it lie in the vector before, so four columns beside each other belong to four trellises.
# Name: bits, memory, block, scale_bits, steps.
DESIGNS = {
    "2 bits, grid of 4": (2, 0, 16, 4, "2.8"),
    "2 bits, trellis of 16": (2, 2, 16, 4, "3.3"),
    "2 bits, trellis of 64": (2, 4, 16, 4, "12.8"),
    "3 bits, grid of 8": (3, 0, 16, 6, "5.8"),
    "3 bits, trellis of 16": (3, 1, 16, 6, "6.5"),
    "3 bits, trellis of 64": (3, 3, 16, 6, "17.8"),
    "4 bits, grid of 16": (4, 0, 32, 6, "2.5"),
}


def design(name):
    return Trellis(name, *DESIGNS[name])
