"""Found by `python -m tests.fuzz`: program 2000050, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5])',
)
PROGRAM = """
def is_positive(x):
    return x.sum() > 0


def make():
    def program(x):
        if not torch.isnan(x).any():
            w = x
            while True:
                w = w.abs() + 1
                if not w.sum() < 25:
                    break
                if w.max() > 9:
                    w = w + 10
            if x.sum() > 0:
                flag = False
                while not flag:
                    x = x.abs() + 1
                    flag = not bool(x.sum() < 20)
            elif torch.arange(3)[0] > 0:
                x, w = torch.stack([w, w]), w
        k = 0
        while x.abs().max() < 40:
            x = x.abs() * 2 + 1
            k += 1
        return {'v': (torch.ones(3) + torch.ones(3).sum()), 'n': (2.0 if (is_positive(torch.ones(3)) or (k > 1)) else 2.0)}

    return program
"""
