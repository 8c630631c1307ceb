"""Found by `python -m tests.fuzz`: program 1000716, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([1.0, 2.0, 3.0]), torch.zeros(0, 3)',
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([[-1.0, 0.5, -3.0], [2.0, -5.0, 1.0]])',
)
PROGRAM = """
def is_positive(x):
    return x.sum() > 0


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

    def forward(self, x, grid, *, mode='a', n=2):
        if (x.mean().item() > 2.0) and ((n > 1) and torch.equal(x, x.abs())):
            if torch.equal(x, x.abs()):
                own = x.flip(0) * 1
                own.add_(1)
                x = own @ torch.ones(3, 3)
            n *= n
        print(grid is None)
        turns4 = 0
        while turns4 < 2 and (x.sum() == x.sum()):
            turns4 += 1
            if is_positive(x * n):
                return 0.5
            x = x - x
            x = torch.bincount(torch.arange(3).abs() % 3, minlength=3)
        else:
            n = n
        n = n
        return grid, mode, x, n


make = Model
"""
