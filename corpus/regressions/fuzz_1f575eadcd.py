"""Found by `python -m tests.fuzz`: program 301000600, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.zeros(3), torch.tensor(nan), mask=torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
class Box:

    def __init__(self, value, count=0):
        self.value = value
        self.count = count

def kept(x):
    if x.sum() > 0:
        return x * 2
    return None

def signed(x):
    if x.min() < 0:
        return (x.abs(), 'negative')
    return (x, 'positive')

def shift_(x):
    x.add_(1)
    return x

def grown(items):
    if items[0].sum() > 0:
        items.append(items[0] * 2)
    return items

class Model(nn.Module):

    def forward(self, x, s, mask=None):
        if not (x < x).any():
            out = torch.empty(3)
            if (x > 0).any():
                torch.add(x.detach(), 1, out=out)
            else:
                out.zero_()
            x = out + x
            own = functional.dropout(x, 0.5).detach() * 1
            part, twin, wide, turned = (own[1:], own, torch.ones(1).expand(3), own.view(3, 1).t())
            rows, kept, grown = (torch.zeros(2, 3), [own, own[:1]], torch.zeros(3))
            if torch.arange(3)[0] > 0:
                Box(x).value.add_(x * turned)
                if x.sum() > 0:
                    x.add_(1)
            elif torch.equal(x, x.abs()):
                own.data.add_(1)
            print(own.sum().item(), part.sum().item())
            x = x + own * twin
            del s
        else:
            w = inner5(x.as_strided((3,), (1,)))
            own = x.half().float() * 1
            part, twin, wide, turned = (own[1:], own, torch.ones(1).expand(3), own.view(3, 1).t())
            rows, kept, grown = (torch.zeros(2, 3), [own, own[:1]], torch.zeros(3))
            own = (w * 2).detach() * 1
            part, twin, wide, turned = (own[1:], own, torch.ones(1).expand(3), own.view(3, 1).t())
            rows, kept, grown = (torch.zeros(2, 3), [own, own[:1]], torch.zeros(3))
            for i in range(2):
                if s:
                    rows = rows * 2
                    continue
                Box(x).value.t_()
            own = own + own.sum() + grown
        x = own.clamp(min=0).sqrt() * -2.0
        return (mask, own, x)
make = Model
"""
