"""Found by `python -m tests.fuzz`: program 401001043, made smaller, with the oracle "inductor"."""

ORACLE = 'inductor'
OPEN = ''
TRAINING = False
POLICY = ''
CALLS = (
    'torch.tensor([4.0, -3.0, 0.0]), Box(torch.tensor([1.0, 2.0, 3.0])), mode="b", scale=0.5',
)
PROGRAM = """
class Box:

    def __init__(self, value, count=0):
        self.count = count

class Filled(nn.Module):
    pass
filled = Filled()

def make():

    def program(x, box, mode='a', scale=0.5):
        own = x * 1
        kept = [own, own]
        if x.sum() > 0:
            filled.register_buffer('late', torch.stack([x, x]).unbind(0)[0].detach().clone())
        print(len(list(filled.buffers())))
        box = box
        scale = scale
    return program
"""
