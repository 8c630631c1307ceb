"""Found by `python -m tests.fuzz`: program 1000283, made smaller, with the oracle "plain"."""

ORACLE = 'plain'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([60.0, -70.0, 30.0]), torch.tensor([nan, 1.0, -1.0])',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x, y):
        try:
            pass
        except Exception as error:
            pass
make = Model
"""
