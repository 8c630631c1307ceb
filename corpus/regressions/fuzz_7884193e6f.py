"""Found by `python -m tests.fuzz`: program 201000106, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([nan, 1.0, -1.0]), [torch.tensor([-1.0, -2.0, 0.5])], torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])',
)
PROGRAM = """
class Filled(nn.Module):
    pass
filled = Filled()

class Model(nn.Module):

    def forward(self, x, items, grid):
        filled.register_buffer('late', x)
        print(sorted(filled._buffers))
make = Model
"""
