"""What a planted defect of attention may change, each in a method of its own; as it stands all of it is right."""

import torch


class Choices:
    """Rows are `i` and keys `j`, as `[Sq, 1]` and `[1, Sk]`."""

    def scale(self, problem):
        return problem.scale

    def kv_head(self, h, group, heads_kv):
        return h // group

    def shift(self, problem, queries, keys):
        return keys - queries if problem.causal == "bottom-right" else 0

    def window_shift(self, problem, queries, keys):
        return self.shift(problem, queries, keys)

    def causal(self, i, j):
        return j <= i

    def prefix(self, j, lengths, batch):
        return j < lengths[batch]

    def window(self, i, j, left, right):
        see = torch.ones_like(i + j, dtype=torch.bool)
        if left is not None:
            see &= i - j <= left
        if right is not None:
            see &= j - i <= right
        return see

    def ancestors(self, parents, node):
        while node >= 0:
            yield node
            node = parents[node]

    def pattern(self, problem, bits):
        return bits

    def live(self, problem, blocks):
        return blocks

    def keys(self, length):
        return length

    def parents(self, tree, batch):
        return tree[batch] if isinstance(tree[0], tuple) else tree

    def drop_keys(self, see):
        return see

    def alibi(self, distance):
        return distance.abs()

    def alibi_slopes(self, slopes):
        return slopes

    def table(self, table):
        return table

    def relative_distance(self, distance, reach):
        return distance.clamp(-reach, reach)

    def table_gradient(self, ds, buckets, count):
        return torch.stack([ds.masked_fill(buckets != n, 0.0).sum((0, 2, 3)) for n in range(count)], -1)

    def add_bias(self, z, bias):
        return z + bias

    def cap(self, z, cap):
        return cap * torch.tanh(z / cap)

    def cap_slope(self, z, cap):
        return 1 - torch.tanh(z / cap) ** 2

    def sinks(self, sink):
        return sink

    def lse(self, lse, without_sink):
        return lse

    def dq_factor(self, problem):
        return 1.0

    def dk_factor(self, problem):
        return 1.0

    def output(self, o, z, v, lse):
        return o

    def kept(self, problem, keep):
        return keep

    def backward_see(self, see):
        return see

    def group_sum(self, x, group):
        return x.unflatten(1, (-1, group)).sum(2)
