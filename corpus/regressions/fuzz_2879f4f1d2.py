"""Found by `python -m tests.fuzz`: program 302000095, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Filled(nn.Module):
    pass
filled = Filled()

def make():

    def program(x):
        if x.sum() > 0:
            del filled.notes
        return x
    return program
"""
