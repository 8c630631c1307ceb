"""Found by `python -m tests.fuzz`: program 201001157, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5]), mask=torch.tensor([-1.0, -2.0, 0.5])',
)
PROGRAM = """
def make():

    def program(x, *, mask=None):
        held = [x]
        held.appendleft(x.shape[0])
    return program
"""
