"""Found by `python -m tests.fuzz`: program 402003399, made smaller, with the oracle "surface"."""

ORACLE = 'surface'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.25, 0.5, -0.125])',
    'torch.tensor([nan, 1.0, -1.0])',
    'torch.tensor([0.25, 0.5, -0.125])',
    'torch.tensor([0.1, 0.7, 0.4])',
    'torch.tensor([nan, 1.0, -1.0])',
)
PROGRAM = """
def pieces(x):
    for row in x:
        if row > 0:
            yield row * 2
        else:
            yield row


class Block(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.scale = scale

    def forward(self, x):
        if x.sum() > 4:
            return x / self.scale
        return self.norm(torch.stack([x, x * 2, -x]))[0]


def hook(module, arguments, result):
    if result.sum() > 0:
        return result * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
        self.blocks = nn.ModuleList([Block(2.0), Block(0.5)])
        self.norm = nn.BatchNorm1d(3, momentum=0.3)
        self.drop = nn.Dropout(0.4)
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("total", torch.zeros(3))
        self.linear.register_forward_hook(hook)
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x):
        held = {'a': {'a': x, 'b': -x}.get('c', x)}
        if (x.max() < x.max()):
            held.clear()
        held.extend(list([x, x * 2]))
        print(5 in held)
        if ((sum(pieces(x)) + x) > 0).all():
            return x
        return (x * 2), self.count


make = Model
"""
