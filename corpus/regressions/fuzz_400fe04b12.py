"""Found by `python -m tests.fuzz`: program 2000579, made smaller, with the oracle "aot_eager"."""

ORACLE = 'aot_eager'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([inf, -1.0, 2.0]), [torch.tensor([-1.0, -2.0, 0.5])]',
)
PROGRAM = """
current = contextvars.ContextVar('current', default=0)

class Model(nn.Module):

    def forward(self, x, items):
        for i in range(3):
            i
        else:
            print(current.get(1), 'a', sep='-')
make = Model
"""
