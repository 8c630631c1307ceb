"""Found by `python -m tests.fuzz`: program 301000733, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([4.0, -3.0, 0.0]), torch.tensor([-1, 0, -4])',
)
PROGRAM = """
def make():

    def program(x, ids):
        if x.sum() > 1:
            nested['a'], nested['c'] = random.randrange(4)
    return program
"""
