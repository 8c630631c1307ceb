"""Found by `python -m tests.fuzz`: program 402001130, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([60.0, -70.0, 30.0]), torch.tensor([60000.0, 30000.0, -1.0], dtype=torch.float16), [torch.tensor([-1.0, -2.0, 0.5])]',
)
PROGRAM = """
class Model(nn.Module):

    def forward(self, x, low, items):
        if (x > 0)[0].item() / x.sum().tolist() > 1:
            pass
        return x
make = Model
"""
