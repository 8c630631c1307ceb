"""Found by `python -m tests.fuzz`: program 201001914, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.1, 0.7, 0.4])',
)
PROGRAM = """
def bounded(x, limit=50.0):
    return x

class Codec(nn.Module):
    pass
codec = Codec()

class Model(nn.Module):

    def forward(self, x):
        for v in [v if v.max() > 1 else -v for v in [x, x * 2]][:3]:
            if (v > 0).all():
                raise KeyError(f'{2}') from ValueError('cause')
            if bounded(v).sum() > 0:
                return self.limit
        x = step(x)
        return x
make = Model
"""
