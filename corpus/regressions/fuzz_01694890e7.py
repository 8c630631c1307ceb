"""Found by `python -m tests.fuzz`: program 7100000980, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), (torch.tensor([-1.0, -2.0, 0.5]), 2), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])], Box(torch.tensor([-1.0, -2.0, 0.5]), 2)',
    'torch.tensor([-0.0, 0.0, -7.0]), (torch.tensor([1.0, 2.0, 3.0]), 1), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])], Box(torch.tensor([1.0, 2.0, 3.0]))',
)
PROGRAM = """
class Box:

    def __init__(self, value, count=0):
        self.value = value
        self.count = count

def require(x, most=50.0):
    if x.max() > most:
        raise ValueError('too large', most)
    return x

def make():

    def program(x, both, items, box):
        for v in items[:3]:
            turns1 = 0
            require(x.view(3))
            if x.sum() > 0 or (x > 0).any():
                box = box.count
        w = x
        x = w
        return (both, items, box, w, x)
    return program
"""
