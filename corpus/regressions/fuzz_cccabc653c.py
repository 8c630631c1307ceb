"""Found by `python -m tests.fuzz`: program 2000548, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([1.0, 2.0, 3.0])',
)
PROGRAM = """
def is_positive(x):
    return x.sum() > 0

def make():

    def program(x):

        def inner2(p):
            if is_positive(x):
                pass
        w = inner2(functional.dropout(x, 0.5))
    return program
"""
