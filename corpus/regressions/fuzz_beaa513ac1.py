"""Found by `python -m tests.fuzz`: program 402004716, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0])',
)
PROGRAM = """
def make():

    def program(x):
        own = x.detach() * 1
        rows, kept, grown = (torch.zeros(2, 3), [own, own[:1]], 3)
        if 0 < x.sum() < 5:
            torch.add(rows, 1, out=kept[0])
        return kept
    return program
"""
