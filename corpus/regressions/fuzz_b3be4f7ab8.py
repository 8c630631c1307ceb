"""Found by `python -m tests.fuzz`: program 1000107, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = True
POLICY = ''
CALLS = (
    'torch.tensor([-0.0, 0.0, -7.0]), n=0, mask=torch.tensor([4.0, -3.0, 0.0])',
    'torch.tensor([-0.0, 0.0, -7.0]), n=2, mask=torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Block(nn.Module):

    def __init__(self, scale):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.scale = scale

def hook(module, arguments, result):
    if result.sum() > 0:
        return result * 2

class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
        self.blocks = nn.ModuleList([Block(2.0), Block(0.5)])
        self.norm = nn.BatchNorm1d(3, momentum=0.3)
        self.drop = nn.Dropout(0.4)
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer('total', torch.zeros(3))
        self.linear.register_forward_hook(hook)
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x, n=2, mask=None):
        if (x > 0).all():
            x = self.drop(x)
        else:
            x = self.linear(x)
        if x.sum():
            print(self.last is None, self.limit, self.count)
            grid, mask = (torch.stack([x, x]), self.last)
            x = x
        out = x
        return (n, grid, x, mask, out)
make = Model
"""
