"""Found by `python -m tests.fuzz`: program 13113000217, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([60.0, -70.0, 30.0]), [1]',
)
PROGRAM = """
class Node:
    def __init__(self, n, items=None):
        self.n = n
        self.items = [] if items is None else items
        self.other = None


class Holder:
    def __init__(self):
        pass
        self.items, self.table, self.seen = [0], {}, set()
        self.queue, self.node = collections.deque(), Node(0)
        self.lists, self.pair = [self.items], (self.items, 0)
        self.array = numpy.array([1.0, 2.0])
        self.tensors, self.last = [torch.ones(3)], None


shared = {"items": [1], "table": {"k": 1}, "node": Node(1)}


def make():
    holder = Holder()

    def program(x, given):
        i = 0
        a = shared['items']
        s = set()
        t = set()
        def put(other):
            nonlocal a
            a = other
        if x[0] > 0:
            t, s = s, t
            for i in range(3):
                shared['items'] = a = []
                holder.items = a = []
            i = 0
        else:
            s |= {1}
            if x.sum() > 2:
                x = x - 1 * sum(a)
                del a[:1]
            else:
                t = set()
                t = set(t)
        for i in range(2):
            t.clear()
            a.extend(holder.items)
            s -= t
        i = 0
        if holder.items: holder.items.pop()
        s = t
        for i in range(3):
            shared['items'].insert(0, len(shared))
            shared['items'] = shared['items'] if x.max() > 1 else holder.items
            t.clear()
        i = 0
        shared['items'] = holder.items = a + [len(shared)]
        t.add(2)
        shared['items'] += [i]
        s = t
        t, s = s, t
        a = []
        return x, a is holder.items, holder.items is shared['items'], shared['items'] is a, len(a), len(holder.items), len(shared['items']), s is t, t is s, len(s), len(t), holder.items is shared['items'], holder.node.items is holder.items, a

    return program
"""
