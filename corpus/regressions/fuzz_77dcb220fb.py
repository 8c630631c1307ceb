"""Found by `python -m tests.fuzz`: program 2000273, made smaller, with the oracle "fullgraph"."""

ORACLE = 'fullgraph'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([-1.0, -2.0, 0.5]), torch.tensor(0.0)',
)
PROGRAM = """
class Meter:

    def __init__(self, value):
        pass

    def read(self):
        sys._getframe()
bcmend.register_capture(Meter.read, lambda self: 1)

def make():

    def program(x, s):
        x = Meter(x).read()
        x = 3 // torch.arange(3)
    return program
"""
