"""Found by `python -m tests.fuzz`: program 7100000775, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([[-1.0, -2.0, -3.0]])',
)
PROGRAM = """
def make():

    def program(x, grid):
        cube = torch.zeros(2, 3, 3)
        cube[len({'a': x, 'b': x}), 2, :(x > 0).sum()] = x > 0
    return program
"""
