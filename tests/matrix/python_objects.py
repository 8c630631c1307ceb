"""Effects on variables, attributes, classes and functions, and those of special methods.

In the order of "Data model", "Execution model" and "Simple statements" of the Python reference.
"""

from __future__ import annotations

from typing import Final

from tests.matrix.effect import Effect

_COUNTED: Final = """
class Counted:
    made = 0
    def __init__(self):
        self.count = 0
        self.value = 1
"""


def _special(name: str, method: str, act: str, look: str = "s.o.count") -> Effect:
    """Return the effect of a special method that counts its calls."""
    setup = _COUNTED + "".join(f"    {line}\n" for line in method.splitlines())
    return Effect(name, act, look, thing="s.o", state="s.o = Counted()", setup=setup)


def _on_object(name: str, act: str, look: str, *, setup: str = _COUNTED) -> Effect:
    return Effect(name, act, look, thing="s.o", state="s.o = Counted()", setup=setup)


VARIABLES: Final = (
    Effect("local: rebind", "z = 5", "z", local="z = 1", thing="z"),
    Effect("local: augment a list", "z += [5]", "list(z)", local="z = [1]", thing="z"),
    Effect("local: unpack", "z, *_ = [7, 8, 9]", "z", local="z = 1", thing="z"),
    Effect("local: walrus", "s.a = (z := s.a + 2)", "z", local="z = 0", state="s.a = 1"),
    Effect("local of a tensor: new", "z = y * 2", "z", local="z = x + 0", thing="z"),
    Effect("local of a tensor: alias", "z = y", "z", local="z = x + 0", thing="z"),
    Effect("nonlocal: rebind", "c = c + 1", "c", declare="nonlocal c", state="c = 0"),
    Effect(
        "nonlocal: tensor", "c = y + 1", "c", declare="nonlocal c", state="c = s.t", thing="c"
    ),
    Effect("global: rebind", "G = G + 1", "G", declare="global G", setup="G = 0"),
    Effect("global: tensor", "G = y + 1", "G", declare="global G", setup="G = None", thing="G"),
    Effect("global: new", "N = 3", "globals().get('N')", declare="global N"),
    Effect("global: by its dictionary", "globals()['G'] = 4", "G", setup="G = 0"),
    Effect("global: list", "G.append(1)", "list(G)", setup="G = []", thing="G"),
    Effect(
        "global: attribute of a module",
        "M.level = 3",
        "M.level",
        setup="M = types.ModuleType('M')\nM.level = 0",
        thing="M",
    ),
    Effect("global: import", "import this_is_new", "'this_is_new' in sys.modules", setup="""
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == 'this_is_new':
            return importlib.machinery.ModuleSpec(name, Finder)
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        module.value = 1
sys.meta_path.append(Finder)
"""),
    Effect("global: exec", "exec('G = 6', globals())", "G", setup="G = 0"),
)  # fmt: skip

ATTRIBUTES: Final = (
    Effect("attribute: store", "s.a = 5", "s.a", state="s.a = 1"),
    Effect("attribute: augment", "s.a += 1", "s.a", state="s.a = 1"),
    Effect("attribute: new", "s.fresh = 3", "getattr(s, 'fresh', None)"),
    Effect("attribute: delete", "if hasattr(s, 'a'):\n    del s.a", "hasattr(s, 'a')",
           state="s.a = 1"),
    Effect("attribute: delete and store", "del s.a\ns.a = 2", "list(vars(s))[-1]",
           state="s.a = 1\ns.b = 1"),
    Effect("attribute by name: setattr", "setattr(s, 'a', getattr(s, 'a') + 1)", "s.a",
           state="s.a = 1"),
    Effect("attribute by name: vars", "vars(s).update(a=4)", "s.a", state="s.a = 1"),
    Effect("attribute by name: __dict__", "s.__dict__['a'] = 4", "s.a", state="s.a = 1"),
    Effect("attribute of a tensor: new", "s.h = y * 2", "s.h", state="s.h = s.t", thing="s.h"),
    Effect("attribute of a tensor: two names", "s.h = s.g = y + 1", "(s.h, s.g, s.h is s.g)",
           state="s.h = s.t\ns.g = s.t", thing="s.h"),
    Effect("attribute of a tensor: the result", "s.h = y", "s.h", state="s.h = s.t", thing="s.h"),
    Effect("attribute of a tensor: None", "s.h = None if s.h is not None else y + 1",
           "s.h is None", state="s.h = s.t", thing="s.h"),
    Effect("attribute of a tensor: swap", "s.g, s.h = s.h, s.g", "(s.g is s.t, s.h is s.t)",
           state="s.g = s.t\ns.h = s.t + 1", thing="s.h"),
    Effect("attribute: new object", "s.o = Counted()\ns.o.count = 3", "s.o.count", thing="s.o",
           state="s.o = Counted()", setup=_COUNTED),
    Effect("attribute: bound method", "s.f = s.log.append", "s.f is None", state="s.f = None",
           thing="s.f"),
    Effect("attribute: function", "s.f = lambda v: v + y.numel()", "s.f(1)",
           state="s.f = lambda v: 0", thing="s.f"),
    Effect("object: slot", "s.o.v = 4", "s.o.v", thing="s.o", state="s.o = Slotted()\ns.o.v = 1",
           setup="class Slotted:\n    __slots__ = ('v',)"),
    _on_object("class attribute: store", "Counted.made = True", "Counted.made"),
    _on_object("class attribute: by the type", "type(s.o).made += 1", "Counted.made"),
    _on_object("class attribute: new", "Counted.fresh = 2", "getattr(Counted, 'fresh', None)"),
    _on_object("class attribute: method", "Counted.value_of = lambda self: 9", "s.o.value_of()",
               setup=_COUNTED + "    def value_of(self):\n        return 1\n"),
    _on_object("object: other class", "s.o.__class__ = Other", "type(s.o).__name__",
               setup=_COUNTED + "class Other(Counted):\n    pass\n"),
    _on_object("object: method of its own", "s.o.value_of = lambda: 9", "s.o.value_of()",
               setup=_COUNTED + "    def value_of(self):\n        return 1\n"),
    Effect("class: new subclass", "type('Sub', (Base,), {})", "list(NAMES)", thing="NAMES",
           setup="""
NAMES = []
class Base:
    def __init_subclass__(cls):
        NAMES.append(cls.__name__)
"""),
    Effect("class: metaclass store", "Meta_.level = 2", "dict(STORES)", thing="STORES", setup="""
STORES = {}
class Meta(type):
    def __setattr__(cls, name, value):
        STORES[name] = STORES.get(name, 0) + value
class Meta_(metaclass=Meta):
    pass
"""),
    Effect("class: virtual subclass", "Shape.register(Counted)", "isinstance(s.o, Shape)",
           state="s.o = Counted()", setup=_COUNTED + "class Shape(abc.ABC):\n    pass\n"),
    Effect("dataclass: field", "s.o.v = y.sum()\ns.o.n += 1", "(s.o.v, s.o.n)", thing="s.o",
           state="s.o = Item(s.t.sum(), 0)", setup="""
@dataclasses.dataclass
class Item:
    v: object
    n: int
"""),
    Effect("dataclass: replace", "s.o = dataclasses.replace(s.o, n=s.o.n + 1)", "s.o.n",
           thing="s.o", state="s.o = Item(1, 0)", setup="""
@dataclasses.dataclass(frozen=True)
class Item:
    v: object
    n: int
"""),
    Effect("dataclass: frozen field", "object.__setattr__(s.o, 'n', 4)", "s.o.n", thing="s.o",
           state="s.o = Item(0)", setup="""
@dataclasses.dataclass(frozen=True)
class Item:
    n: int
"""),
    Effect("object: enum member", "Color.RED.used = True",
           "getattr(Color.RED, 'used', False)",
           setup="class Color(enum.Enum):\n    RED = 1\n", thing="Color.RED"),
    Effect("object: enum as a state", "s.a = Color.BLUE", "s.a.name", thing="s.a",
           state="s.a = Color.RED", setup="class Color(enum.Enum):\n    RED = 1\n    BLUE = 2\n"),
    Effect("object: namespace", "s.n.v = 5", "s.n.v", thing="s.n",
           state="s.n = types.SimpleNamespace(v=1)"),
    Effect("object: named tuple", "s.o = s.o._replace(v=s.o.v + 1)", "s.o.v", thing="s.o",
           state="s.o = Pair(1, 2)", setup="Pair = collections.namedtuple('Pair', 'v u')"),
    Effect("descriptor: cached property", "s.o.total", "'total' in vars(s.o)", thing="s.o",
           state="s.o = Counted()", setup=_COUNTED + """
    @functools.cached_property
    def total(self):
        self.count += 1
        return self.count
"""),
    Effect("descriptor: property", "s.o.level = 3", "s.o.stored", thing="s.o",
           state="s.o = Counted()\ns.o.stored = 0", setup=_COUNTED + """
    @property
    def level(self):
        return self.stored
    @level.setter
    def level(self, value):
        self.stored += value
"""),
    Effect("descriptor: __set__", "s.o.level = 3", "list(STORED)", thing="STORED",
           state="s.o = Counted()", setup="""
STORED = []
class Level:
    def __get__(self, owner, kind):
        return len(STORED)
    def __set__(self, owner, value):
        STORED.append(value)
""" + _COUNTED + "    level = Level()\n"),
)  # fmt: skip

FUNCTIONS: Final = (
    Effect("function: attribute", "helper_.calls += 1", "helper_.calls", thing="helper_",
           setup="def helper_():\n    pass\nhelper_.calls = 0\n"),
    Effect("function: mutable default", "helper_(1)", "len(helper_.__defaults__[0])",
           setup="def helper_(v, kept=[]):\n    kept.append(v)\n"),
    Effect("function: __defaults__", "helper_.__defaults__ = (5,)", "helper_()",
           setup="def helper_(v=1):\n    return v\n"),
    Effect("function: __kwdefaults__", "helper_.__kwdefaults__['v'] = 5", "helper_()",
           setup="def helper_(*, v=1):\n    return v\n"),
    Effect("function cache: filled", "cached(3)", "cached.cache_info().currsize",
           setup="@functools.lru_cache\ndef cached(v):\n    return v + 1\n"),
    Effect("function cache: cleared", "cached.cache_clear()", "cached.cache_info().currsize",
           setup="@functools.lru_cache\ndef cached(v):\n    return v + 1\ncached(1)\n"),
    Effect("function: single dispatch", "shown.register(int, lambda v: 'int')", "shown(1)",
           setup="@functools.singledispatch\ndef shown(v):\n    return 'any'\n"),
    Effect("function: partial", "s.p.keywords['v'] = 4", "s.p()",
           state="s.p = functools.partial(helper_, v=1)",
           setup="def helper_(v):\n    return v\n", thing="s.p"),
    Effect("function cache: by hand", "fib(5)", "len(MEMO)", thing="MEMO", setup="""
MEMO = {}
def fib(n):
    if n not in MEMO:
        MEMO[n] = n if n < 2 else fib(n - 1) + fib(n - 2)
    return MEMO[n]
"""),
)  # fmt: skip

SPECIAL: Final = (
    _special("special method of access: __init__ counts",
             "@classmethod\ndef new(cls):\n    cls.made += 1\n    return cls()",
             "s.o = Counted.new()", "Counted.made"),
    _special("special method of access: __setattr__", "def __setattr__(self, name, value):\n"
             "    vars(self)[name] = value\n"
             "    vars(self)['stores'] = vars(self).get('stores', 0) + 1",
             "s.o.value = 4", "(s.o.value, s.o.stores)"),
    _special("special method of access: __getattr__",
             "def __getattr__(self, name):\n    self.count += 1\n    return 1",
             "s.o.missing"),
    _special("special method of access: __getattribute__", "def __getattribute__(self, name):\n"
             "    if name == 'value':\n        self.count += 1\n"
             "    return object.__getattribute__(self, name)", "s.o.value"),
    _special("special method of access: __delattr__",
             "def __delattr__(self, name):\n    self.count += 1", "del s.o.value"),
    _special("special method of access: __call__", "def __call__(self):\n    self.count += 1",
             "s.o()"),
    _special("special method of access: __enter__ and __exit__",
             "def __enter__(self):\n    self.count += 1\n"
             "def __exit__(self, *of):\n    self.count += 10", "with s.o:\n    y = y + 1"),
    _special("special method of an operator: __iadd__",
             "def __iadd__(self, other):\n    self.count += other\n    return self",
             "s.o += 2"),
    _special("special method of a container: __setitem__",
             "def __setitem__(self, key, value):\n    self.count += value",
             "s.o[1] = 2"),
    _special("special method of a container: __getitem__",
             "def __getitem__(self, key):\n    self.count += key\n    return 0",
             "s.o[2]"),
    _special("special method of a container: __contains__",
             "def __contains__(self, key):\n    self.count += 1\n    return True",
             "1 in s.o"),
    _special("special method of an operator: __eq__",
             "def __eq__(self, other):\n    self.count += 1\n    return True",
             "s.o == 1"),
    _special("special method of an operator: __hash__",
             "def __hash__(self):\n    self.count += 1\n    return 1", "hash(s.o)"),
    _special("special method of an operator: __bool__",
             "def __bool__(self):\n    self.count += 1\n    return True",
             "if s.o:\n    y = y + 1"),
    _special("special method of a container: __len__",
             "def __len__(self):\n    self.count += 1\n    return 1", "len(s.o)"),
    _special("special method of an operator: __str__",
             "def __str__(self):\n    self.count += 1\n    return 'o'",
             "s.text = f'{s.o}'"),
    _special("special method of a container: __next__", "def __iter__(self):\n    return self\n"
             "def __next__(self):\n    self.count += 1\n    return self.count", "next(s.o)"),
    _special("special method of an operator: __add__ with a tensor",
             "def __radd__(self, other):\n    self.count += 1\n"
             "    return other + 1", "y = y + s.o"),
    Effect("special method of a container: __missing__", "s.d['b']", "list(s.d)", thing="s.d",
           state="s.d = Filling()",
           setup="class Filling(dict):\n    def __missing__(self, key):\n"
                 "        self[key] = 1\n        return 1\n"),
    Effect("object dies: __del__", "s.o = Dying()", "len(DEAD)", thing="s.o",
           state="s.o = Dying()",
           setup="DEAD = []\nclass Dying:\n    def __del__(self):\n        DEAD.append(1)\n"),
)  # fmt: skip

EFFECTS: Final = (*VARIABLES, *ATTRIBUTES, *FUNCTIONS, *SPECIAL)
