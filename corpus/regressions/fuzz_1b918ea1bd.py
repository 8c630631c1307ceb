"""Found by `python -m tests.fuzz`: program 1000979, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([60.0, -70.0, 30.0]), (torch.tensor([1.0, 2.0, 3.0]), 1)',
)
PROGRAM = """
def scaled(x, *others, by=2.0, **options):
    for other in others:
        x = x + other
    if options.get('flip', False):
        x = x.flip(0)
    return x * by

def shift_(x):
    x.add_(1)
    return x

def make():

    def program(x, both):
        if x.sum() > 0:
            try:
                y = shift_(x.clone()) * 1
                y.mul_(x.clamp(min=-1.0, max=2.0))
            except (RuntimeError, IndexError):
                both, holder = (both, Box(x))
            else:
                w = scaled(x, x, by=2.0)
                out = torch.stack([x, x]).sum(0)
            both = (x, 2)
            extra = w
        else:
            x = x
            both = both
            both = both
        w = w
        return (x, holder, both, w)
    return program
"""
