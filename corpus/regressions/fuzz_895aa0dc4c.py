"""Found by `python -m tests.fuzz`: program 401005858, made smaller, with the oracle "compiled"."""

ORACLE = 'compiled'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.1, 0.7, 0.4]), torch.tensor([1, 2, 3]), torch.tensor([-1.0, -2.0, 1.5], dtype=torch.float16), n=-1',
)
PROGRAM = """
def make():

    def program(x, ids, low, *, n=2):
        del n
        own = torch.relu(x).detach() * 1
        part, twin, wide, turned = (own[1:], own, torch.ones(1).expand(3), own.view(3, 1).t())
        rows, kept, grown = (torch.zeros(2, 3), [own, own[:1]], torch.zeros(3))
        if x.mean().item() > 2.0:
            torch.add(rows, 1, out=x)
        x = x + own * twin
        return (x, ids, low)
    return program
"""
