"""Found by `python -m tests.fuzz`: program 302001696, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5]), torch.tensor(-0.25), mask=torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
def scaled(x, *others, by=2.0, **options):
    for other in others:
        x = x + other
    if options.get('flip', False):
        x = x.flip(0)
    return x * by

class Block(nn.Module):

    def __init__(self, scale):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.scale = scale

    def forward(self, x):
        if x.sum() > 4:
            return x / self.scale
        return self.norm(torch.stack([x, x * 2, -x]))[0]

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

    def forward(self, x, s, mask=None):
        x = x
        for index, block in enumerate(self.blocks):
            x = block(x)
            self.kept.append(x.detach())
        loss = None
        if ((x > 0) & (x > 0)).any():
            loss = functional.mse_loss(x[x < x], scaled(x, x, by=2.0)[torch.arange(3) != 0])
        history = []
        print(len(history))
        return (s, mask, x, loss)
make = Model
"""
