"""Found by `python -m tests.fuzz`: program 501000013, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0]), [1, 2]',
)
PROGRAM = """
class Node:

    def __init__(self, n, items=None):
        self.n = n

class Holder(nn.Module):

    def __init__(self):
        super().__init__()
        self.queue, self.node = (collections.deque(), Node(0))
shared = {'items': [1], 'table': {'k': 1}, 'node': Node(1)}

class Model(Holder):

    def forward(self, x, given):
        holder = self
        i = 0
        q = holder.queue
        q.clear()
        i = 0
        if x.min() < 0:
            holder.queue.appendleft(len(shared))
        holder.items = []
        n = given is holder.items
        x = x + n
make = Model
"""
