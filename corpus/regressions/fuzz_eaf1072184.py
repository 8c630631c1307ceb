"""Found by `python -m tests.fuzz`: program 42000622, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([nan, 1.0, -1.0]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16)',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x, low):
        for i in range(2):
            if torch.equal(x, x):
                continue
            g = lambda p, n=2: torch.rand(3)
            w = g(x)
make = Model
"""
