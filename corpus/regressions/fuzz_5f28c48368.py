"""Found by `python -m tests.fuzz`: program 301000970, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), torch.tensor([0, 2, 1]), torch.tensor([-1.0, -2.0, 1.5], dtype=torch.float16), (torch.tensor([1.0, 2.0, 3.0]), 1)',
)
PROGRAM = """
def require(x, most=50.0):
    if x.max() > most:
        raise most

def make():

    def program(x, ids, low, both):
        if int((x > 0)[1]) == 53:
            pass
        x = require(x)
        ids = ids // ids
    return program
"""
