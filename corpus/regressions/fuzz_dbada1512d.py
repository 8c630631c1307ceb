"""Found by `python -m tests.fuzz`: program 77001000009, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([0.25, 0.5, -0.125]), torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
def make():

    def program(x, y):
        drop = True if (x > 0).all() else False
        if not drop:
            fresh = x
        if drop:
            fresh = None
        print(fresh is None)
        w = g(x)
    return program
"""
