"""Found by `python -m tests.fuzz`: program 2000128, made smaller, with the oracle "plain"."""

ORACLE = 'plain'
OPEN = ""
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5])',
    'torch.tensor([1.0, 2.0, 3.0])',
    'torch.tensor([inf, -1.0, 2.0])',
    'torch.tensor([-0.0, 0.0, -7.0])',
    'torch.tensor([inf, -1.0, 2.0])',
)
PROGRAM = """
def opaque(x):
    sys._getframe()
    return x * 2


def doubled(x):
    return x * 2


bcmend.register_capture(opaque, doubled)


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
        self.register_buffer("total", torch.zeros(3))
        self.linear.register_forward_hook(hook)
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

    def forward(self, x):
        if (0 < x.sum() < 5) or x.sum():
            mode = 'a'
        elif ((torch.stack([x, x]) - 2.0).sum() > x.sum()) or (torch.arange(3)[0] > 0):
            while x.abs().max() < 40:
                x = x.abs() * 2 + 1
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                w = (leaf * leaf).sum() + opaque(x)
            def inner6(p):
                if ((x > 0) & (x > 0)).any():
                    q = p.clamp(min=0).sqrt()
                else:
                    q = p
                return w[torch.arange(3) % 3]
            w = inner6(x)
        else:
            twin = copy.deepcopy({'a': x.detach(), 'n': [1, (2, self.count)]})
            twin['a'] += 1
            w = twin['a']
        for index, block in enumerate(self.blocks):
            x = block(x)
            self.kept.append(x.detach())
        return x


make = Model
"""
