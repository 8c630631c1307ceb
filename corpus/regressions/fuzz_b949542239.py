"""Found by `python -m tests.fuzz`: program 2000063, made smaller, with the oracle "plain"."""

ORACLE = 'plain'
OPEN = ""
TRAINING = False
POLICY = "off=('*:output', '*:branch#2')"
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0]), torch.tensor([60000.0, 30000.0, -1.0], dtype=torch.float16), scale=0.5',
    'torch.tensor([4.0, -3.0, 0.0]), torch.tensor([60000.0, 30000.0, -1.0], dtype=torch.float16), scale=0.5',
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16), scale=0.5',
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16), scale=0.5',
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float16), scale=0.5',
)
PROGRAM = """
def make():

    def program(x, low, scale=0.5):
        scale = 0.5
        x
        low = torch.autograd.Variable(x + 1)
        return (x, scale, low)
    return program
"""
