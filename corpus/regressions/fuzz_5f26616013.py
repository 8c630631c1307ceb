"""Found by `python -m tests.fuzz`: program 2000166, made smaller, with the oracle "plain"."""

ORACLE = 'plain'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0]), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])], torch.tensor([60000.0, 30000.0, -1.0], dtype=torch.float16)',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x, items, low):
        print(*items[:0], '{}'.format(2), end='')
make = Model
"""
