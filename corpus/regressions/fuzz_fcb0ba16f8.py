"""Found by `python -m tests.fuzz`: program 402001959, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([False, False, False])',
)
PROGRAM = """
def make():

    def program(x, chosen):
        if x[1].item() > inf:
            while k < 5:
                pass
        return x
    return program
"""
