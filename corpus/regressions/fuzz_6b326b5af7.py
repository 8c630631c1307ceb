"""Found by `python -m tests.fuzz`: program 2000015, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ""
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5])',
    'torch.tensor([4.0, -3.0, 0.0])',
    'torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("total", torch.zeros(3))
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x):
        for v, n in zip([x, x], (2, 0.5)):
            base = v.detach()
            pair = copy.deepcopy([base, base])
            pair[0].add_(1)
            w = pair[1]
        if [x, x * 2] and (torch.arange(3)[0] > 0):
            turns3 = 0
            while turns3 < 2 and (0 < x.sum() < 5):
                turns3 += 1
                print(self.linear(x).detach())
                k = 2 + 1
                cache = x
            else:
                both = ((x, 1)[0] + 1, 2)
                x = x.argsort()
                named = {**{'a': torch.ones(3), 'b': -torch.ones(3)}, 'c': torch.ones(3)}
        elif x.sum() > 0:
            x = torch.arange(3) // 2
            x = x
        x = torch.ones(3).max()
        n = k
        return k, x, n


make = Model
"""
