"""Found by `python -m tests.fuzz`: program 6, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0])',
)
PROGRAM = """
def make():

    def program(x):
        random.getrandbits(70)
        return x
    return program
"""
