"""Themes about what values are: numbers, loops on them, random numbers, copies."""

from __future__ import annotations

from typing import Final

from tests.fuzz.theme import Theme, templates
from tests.fuzz.values import BOOL, BOX, FLOAT, INT, LIST, MATRIX, TABLE, VECTOR

NUMBERS: Final = Theme(
    "numbers out of tensors",
    {
        INT: (
            "int({vector}.clamp(0, 1).sum())",
            "{mask}.sum().item()",
            "int({scalar}.clamp(-2, 3)) + 1",
            "{integers}.max().item()",
            "{vector}.argmax().item()",
            "round({vector}.sum().item(), 1)",
            "max({int}, int({mask}.sum()))",
            "int({mask}.any())",
            "{integers}.tolist()[0]",
        ),
        FLOAT: (
            "{vector}.mean().item()",
            "float({vector}[0])",
            "abs({vector}.max().item())",
            "min({float}, {vector}.sum().item())",
            "math.sqrt(abs({float}))",
            "{vector}.tolist()[1]",
        ),
        VECTOR: (
            "{vector} * {vector}.sum().item()",
            "torch.full((3,), {float})",
            "{vector} + int({mask}.sum())",
            "{vector}[: int({mask}.sum())].sum() + {vector}",
            "torch.arange({mask}.sum().item()).sum() + {vector}",
            "{vector}[{mask}].sum() + {vector}",
            "{vector}[{vector}.argmax().item()] + {vector}",
        ),
        BOOL: (
            "bool({mask}.all())",
            "{vector}.sum().item() > 1",
            "{float} == {vector}.max().item()",
        ),
    },
    templates(
        r"""
# inside i:int, loop
for i in range(int({mask}.sum())):
    <block>

# inside i:int, loop
for i in range(1, int({mask}.sum()) + 2):
    <block>

# inside i:int, loop
for i in range({mask}.sum().item(), 0, -1):
    <block>

for i in range(int({vector}.clamp(0, 2).max())):
    {v:=vector} = {v} * 2 + i
    if {v}.sum() > 9:
        break

# behind total:float
total = 0.0
for i in range({mask}.sum().item()):
    total += i

if {mask}.sum().item() > 1:
    {v:=vector} = {v} - 1

k = {mask}.sum().item()
if k == 2:
    {v:=vector} = {v} + k
"""
    ),
)
LOOPS: Final = Theme(
    "loops on tensors",
    {},
    templates(
        r"""
# behind k:int
k = 0
while {v:=vector}.abs().max() < 40:
    {v} = {v}.abs() * 2 + 1
    k += 1

# behind k:int y:vector
k, y = {int}, {vector}
while ({v:=vector} > 0).any() and k < 6:
    {v} = {v} - 1
    y = y * 0.5
    k = k + 2

# behind z:vector
z = torch.zeros(3)
while z.sum() < {vector}.abs().sum().clamp(max=20):
    z = z + {vector}.abs() + 0.5
    if z.max() > 7:
        break
else:
    <block>

# behind rate:float
rate = 1.0
while {v:=vector}.sum() > 1:
    {v} = {v}.clamp(max=50) * 0.25 - 0.1
    rate *= 0.5

# behind flag:bool
flag = False
while not flag:
    {v:=vector} = {v}.abs() + 1
    flag = not bool({v}.sum() < 20)

# behind ids:integers
ids = torch.arange(3)
while ids.sum() < 30:
    ids = ids * 2 + 1

for i in range(12):
    {v:=vector} = {v} * 0.5
    if {v}.abs().max() < 0.5:
        break

for i in range(11):
    if {vector}.sum() > i:
        continue
    {v:=vector} = {v} + i

# behind w:vector
w = {vector}
while True:
    w = w.abs() + 1
    if not w.sum() < 25:
        break
    if w.max() > 9:
        w = w + 10

both = ({vector}, 0)
while both[0].abs().sum() < 10:
    both = (both[0].abs() + 1, both[1] + 1)

m = torch.eye(3)
while m.sum() < 9:
    m = m @ m + {vector}.abs() + 1
    x = x + m[0]

z = None
while {v:=vector}.abs().sum() < 9:
    {v} = {v}.abs() + 1
    z = {v}

with torch.no_grad():
    while {v:=vector}.abs().sum() < 9:
        {v} = {v}.abs() + torch.rand(3)
"""
    ),
)
RANDOM_NUMBERS: Final = Theme(
    "random numbers",
    {
        VECTOR: (
            "torch.randn(3)",
            "torch.rand_like({vector})",
            "torch.randn_like({vector}) * {vector}",
            "torch.bernoulli(torch.full((3,), 0.5))",
            "torch.normal(torch.zeros(3), 1.0)",
            "torch.randint(0, 3, (3,)).float()",
            "torch.randperm(3).float()",
            "functional.dropout({vector}, 0.5, training=True)",
            "functional.dropout({vector}, {float} * 0 + 0.3)",
            "functional.rrelu({vector}, training=True)",
            "functional.gumbel_softmax({vector}, dim=0)",
            "torch.multinomial({vector}.abs() + 1, 2).sum() + {vector}",
            "torch.empty(3).uniform_(0, 1)",
            "torch.tensor(numpy.random.rand(3)).float()",
            "(functional.dropout({vector}, 0.5) if {data} else {vector})",
            "({vector} * torch.rand(3) if {data} else {vector} + torch.randn(3))",
            "functional.dropout({vector} * torch.rand(3), 0.2)",
            "functional.scaled_dot_product_attention({matrix}[None], {matrix}[None], "
            "{matrix}[None], dropout_p=0.5)[0].sum(0)",
        ),
        FLOAT: (
            "random.random()",
            "random.uniform(-1, 1)",
            "random.gauss(0, 1)",
            "numpy.random.rand()",
            "float(numpy.random.randint(0, 5))",
            "torch.rand(()).item()",
            "random.choice((0.5, 1.5))",
        ),
        INT: (
            "random.randint(0, 3)",
            "random.randrange(4)",
            "random.getrandbits(2)",
            "len(random.sample(range(9), 2))",
        ),
        MATRIX: (
            "functional.dropout({matrix}, 0.5)",
            "torch.rand(2, 3)",
            "functional.dropout1d({matrix}[None])[0]",
        ),
        BOOL: (
            "random.random() < 0.5",
            "torch.rand(1).item() < 0.5",
            "random.choice((True, False))",
        ),
    },
    templates(
        r"""
random.seed(3)

torch.manual_seed({int})

numpy.random.seed(5)

torch.manual_seed(7)

{list}.append(torch.rand(3))

if {data}:
    {v:=vector} = functional.dropout({v}, 0.5)

if {data}:
    {v:=vector} = {v} + torch.randn(3)
else:
    {v} = functional.dropout({v} * 2, 0.3)

if torch.rand(1) < 0.5:
    {v:=vector} = {v} * 2

if random.random() < 0.5:
    {v:=vector} = {v} * 2

# behind w:vector
order = torch.zeros(3)
if {data}:
    order.normal_()
w = order + {vector}
"""
    ),
)
COPIES_LEAVES: Final = Theme(
    "copies and leaves",
    {
        VECTOR: (
            "copy.copy({vector})",
            "copy.deepcopy({vector}.detach())",
            "torch.autograd.Variable({vector})",
            "torch.autograd.Variable({vector}, requires_grad=False)",
            "torch.autograd.Variable({vector}.detach(), requires_grad=True)",
            "({vector}.detach() * 2).requires_grad_()",
            "{vector}.detach().clone().requires_grad_(False)",
            "opaque({vector})",
            "Meter({vector}).read()",
            "torch.zeros(3).requires_grad_() + {vector}",
        ),
        LIST: (
            "copy.copy({list})",
            "copy.deepcopy([{vector}.detach()])",
            "copy.deepcopy([each.detach() for each in {list}])",
        ),
        TABLE: (
            "copy.copy({table})",
            "copy.deepcopy({'a': {vector}.detach(), 'b': torch.ones(3)})",
        ),
        BOX: ("copy.copy({box})",),
    },
    templates(
        r"""
# behind w:vector
leaf = {vector}.detach().requires_grad_()
w = (leaf * leaf).sum() + {vector}

# behind w:vector
leaf = {vector}.detach().clone()
leaf.requires_grad = True
with torch.enable_grad():
    (slope,) = torch.autograd.grad((leaf * {vector}).sum(), leaf)
w = slope.detach()

# behind w:vector
twin = copy.deepcopy({'a': {vector}.detach(), 'n': [1, (2, {int})]})
twin['a'] += 1
w = twin['a']

# behind other:list
other = copy.copy({list})
other.append({vector})

# behind w:vector
base = {vector}.detach()
pair = copy.deepcopy([base, base])
pair[0].add_(1)
w = pair[1]
"""
    ),
)
