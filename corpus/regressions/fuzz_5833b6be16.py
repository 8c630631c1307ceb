"""Found by `python -m tests.fuzz`: program 34, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.1, 0.7, 0.4]), torch.tensor([2**63 - 1, -(2**63), 1]), Box(torch.tensor([1.0, 2.0, 3.0])), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])]',
)
PROGRAM = """
class Box:

    def __init__(self, value, count=0):
        self.count = count

def note(x):
    print('note', x.sum().item())

def make():

    def program(x, ids, box, items):
        for i in range(min(int((x > 0).any()), 3)):
            note(x[torch.tensor([2, 0, 1])])
        if x.sum() == x.sum():
            box = box
            box = box
            w = x[ids]
        elif x.max() < x.max():
            x = x + int((x > 0).sum())
            box = Box(x, 2)
        return (x, ids, box, items)
    return program
"""
