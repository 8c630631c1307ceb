"""Found by `python -m tests.fuzz`: program 402002515, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([nan, 1.0, -1.0]), (torch.tensor([-1.0, -2.0, 0.5]), 2), [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5])]',
)
PROGRAM = """
class Box:

    def __init__(self, value, count=0):
        self.value = value
        self.count = count

class Model(nn.Module):

    def forward(self, x, both, items):
        leaf = (x.view(3).detach() * 2).requires_grad_()
        with torch.enable_grad():
            slope, = torch.autograd.grad((leaf * leaf).sum(), leaf)
        w = x.log() * slope.sum()
        turns2 = 0
        while turns2 < 3 and (w / x).max() < w.max():
            turns2 += 1
            w = Box(x).value
        w, y, own, last = (w.clamp(min=0).log1p(), torch.where(x > 0, x, x), w * 1, None)
        for n, i in enumerate(torch.argwhere(x > 0)[:, 0].tolist()):
            w = w + y[i]
        return (x, both, items, w)
make = Model
"""
