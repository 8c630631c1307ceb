"""Found by `python -m tests.fuzz`: program 1000003, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ""
TRAINING = True
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)',
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([-1.0, -2.0, 1.5], dtype=torch.float16)',
)
PROGRAM = """
class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer('total', torch.zeros(3))
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x, low):
        if x.sum() > 0:
            self.last = x[torch.arange(3) % 3].detach()
            low = low
            for name in ('a', 'b'):
                low = x.half()
        low = low.abs()
        return (x, low)
make = Model
"""
