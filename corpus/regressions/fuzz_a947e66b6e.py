"""Found by `python -m tests.fuzz`: program 31000000000050, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])]',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x, items):
        level = float((x > 0)[0].item())
        while level < 4:
            level = level * 2 + 1
        return torch
make = Model
"""
