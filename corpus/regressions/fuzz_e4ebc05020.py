"""Found by `python -m tests.fuzz`: program 3500029, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x):
        print(x is None, [x])
        try:
            turns = 0
            while turns < 2 and x.sum():
                assert bool(x.min() < 0), 'not so'
            else:
                y = 1
        except IndexError:
            pass
make = Model
"""
