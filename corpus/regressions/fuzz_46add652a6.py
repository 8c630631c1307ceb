"""Found by `python -m tests.fuzz`: program 20261123000278, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0]), mask=torch.tensor([-0.0, 0.0, -7.0]), scale=0.1',
)
PROGRAM = """
def make():

    def program(x, mask=None, scale=0.5):
        torch._check_with(RuntimeError, 2, None)
        return x
    return program
"""
