"""Found by `python -m tests.fuzz`: program 2000118, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([-1.0, -2.0, 1.5], dtype=torch.float16)',
)
PROGRAM = """
class Broken:

    def __str__(self):
        pass

class Model(nn.Module):

    def forward(self, x, low, scale=0.5, flag=False):
        print(Broken())
        print('behind')
make = Model
"""
