"""Found by `python -m tests.fuzz`: program 77001000005, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = True
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), (torch.tensor([-1.0, -2.0, 0.5]), 2), mask=torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
def make():

    def program(x, both, mask=None):
        own = x.abs() * 1
        if (x > 0).any():
            own.index_fill_(0, torch.tensor([0]), 1.0)
            own.masked_fill_(x > 0, 0.0)
        x = own
        view = 3
        same = view
        return (x, both, mask, same)
    return program
"""
