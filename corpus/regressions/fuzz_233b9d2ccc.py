"""Found by `python -m tests.fuzz`: program 402000266, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([1.0, 2.0, 3.0]), torch.tensor(-inf), {"a": torch.tensor([-1.0, -2.0, 0.5]), "b": torch.tensor([4.0, -3.0, 0.0])}',
)
PROGRAM = """
def make():

    def program(x, s, table):
        del table
        while x.norm() > 90:
            pass
        return table
    return program
"""
