"""Found by `python -m tests.fuzz`: program 2000525, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.zeros(3), [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5])], {"a": torch.tensor([-1.0, -2.0, 0.5]), "b": torch.tensor([4.0, -3.0, 0.0])}, mask=torch.tensor([-1.0, -2.0, 0.5])',
)
PROGRAM = """
def make():

    def program(x, items, table, mask=None):
        for i in range(int(x.sum())):
            bump()
        if torch > x[i]:
            pass
    return program
"""
