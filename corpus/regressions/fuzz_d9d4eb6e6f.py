"""Found by `python -m tests.fuzz`: program 301001207, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.zeros(3), [torch.tensor([4.0, -3.0, 0.0]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-0.0, 0.0, -7.0])]',
)
PROGRAM = """
class Box:
    pass

def is_positive(x):
    return x.sum() > 0

class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x, items):
        if x.sum():
            with torch.no_grad():
                if x.sum() <= 2.0:
                    return (x.clamp(min=-1.0, max=2.0), 'left')
            items = items
        elif bool(x.min() < 0) and is_positive(x):
            rate = -2.0
            k = self.count
            y = functional.dropout(x, 0.5)
        else:
            items = [v for v in items if v.sum() > 0]
            items = items
        holder = Box(y)
        y = y
        return (x, items, holder, y)
make = Model
"""
