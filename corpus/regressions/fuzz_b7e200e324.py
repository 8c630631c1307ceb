"""Found by `python -m tests.fuzz`: program 302001728, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.25, 0.5, -0.125]), n=2',
)
PROGRAM = """
class Model(nn.Module):

    def __init__(self):
        super().__init__()
        self.count = 0
        self.kept = []

    def forward(self, x, *, mode='a', n=2):
        out = torch.empty(3)
        if (x > 0).any():
            torch.add(x[torch.tensor([2, 0, 1])].detach(), 1, out=out)
        x = out + x
        own = x.flip(0) * 1
        view = own.view(-1)
        if torch.equal(x, x.abs()):
            own.add_(x)
        x = view + 0
        n = self.count
        return (x, mode, n)
make = Model
"""
