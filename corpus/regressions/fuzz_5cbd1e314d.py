"""Found by `python -m tests.fuzz`: program 800000, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0])',
)
PROGRAM = """
def make():

    def program(x, *, mask=None):
        z = [v for v in x][(x > 0).sum()]
        rate = 0.5
        return rate

    return program
"""
