"""Found by `python -m tests.fuzz`: program 1000229, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([nan, 1.0, -1.0]), torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Shown:

    def __init__(self):
        self.value = 0
        self.parts = []

    def __repr__(self):
        return f'Shown({self.value}, {self.parts})'
shown = Shown()

class Model(nn.Module):

    def forward(self, x, y):
        print(shown)
        shown.value = y.shape
make = Model
"""
