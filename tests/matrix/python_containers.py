"""Effects on containers, iterators and generators: builtins, `collections` and their kin."""

from __future__ import annotations

from typing import Final

from tests.matrix.effect import Effect


def _list(name: str, act: str, start: str = "[1, 2, 3]") -> Effect:
    return Effect(
        name if ":" in name else f"list: {name}",
        act,
        "list(s.l)",
        thing="s.l",
        state=f"s.l = {start}",
    )


def _dict(name: str, act: str, start: str = "{'a': 1, 'b': 2, 'c': 3}") -> Effect:
    return Effect(
        name if ":" in name else f"dict: {name}",
        act,
        "list(s.d.items())",
        thing="s.d",
        state=f"s.d = {start}",
    )


def _set(name: str, act: str) -> Effect:
    return Effect(f"set: {name}", act, "sorted(s.e)", thing="s.e", state="s.e = {1, 2, 3}")


BUILTIN: Final = (
    _list("append", "s.l.append(4)"),
    _list("container of tensors: list, append", "s.l.append(y * 2)", "[]"),
    _list("pop", "s.l and s.l.pop()"),
    _list("insert", "s.l.insert(0, 9)"),
    _list("extend", "s.l.extend([7, 8])"),
    _list("part of a list: item", "s.l[0] = 9"),
    _list("container of tensors: list, item", "s.l[1] = y", "[s.t, s.t]"),
    _list("part of a list: slice", "s.l[1:] = [5]"),
    _list("part of a list: deleted", "del s.l[1:]"),
    _list("order of a list: sort", "s.l.append(-len(s.l))\ns.l.sort()"),
    _list("order of a list: reverse", "s.l.reverse()"),
    _list("augment", "s.l += [4]"),
    _list("clear", "s.l.clear()"),
    _list("into itself", "s.l = [s.l]"),
    _dict("store", "s.d['a'] = 4"),
    _dict("store a new key", "s.d['z'] = 4"),
    _dict("container of tensors: dict", "s.d['a'] = y", "{'a': s.t}"),
    _dict("order of a dict: delete", "if 'a' in s.d:\n    del s.d['a']"),
    _dict("order of a dict: pop", "s.d['a'] = s.d.pop('a')"),
    _dict("setdefault", "s.d.setdefault('y', []).append(1)"),
    _dict("update", "s.d |= {'b': 7, 'q': 8}"),
    _dict("order of a dict: popitem", "s.d and s.d.popitem()"),
    _dict("clear", "s.d.clear()"),
    _dict("key is a tuple", "s.d[('k', len(s.d))] = 1"),
    _dict("a list in it", "s.d['l'].append(1)", "{'l': []}"),
    _set("add", "s.e.add(4)"),
    _set("discard", "s.e.discard(1)"),
    _set("symmetric difference", "s.e ^= {1, 9}"),
    Effect("container of tensors: set", "s.e.add(y)", "len(s.e)", thing="s.e",
           state="s.e = set()"),
    Effect("buffer: bytearray", "s.b[0] = 7\ns.b.append(1)", "bytes(s.b)", thing="s.b",
           state="s.b = bytearray(2)"),
    Effect("buffer: memoryview", "s.m[1] = 9", "bytes(s.b)", thing="s.b",
           state="s.b = bytearray(2)\ns.m = memoryview(s.b)"),
    Effect("buffer: array", "s.b.append(3)", "s.b.tolist()", thing="s.b",
           state="s.b = array.array('i')"),
    Effect("numpy: store", "s.b[0] = 3", "s.b.tolist()", thing="s.b",
           state="s.b = numpy.zeros(2)"),
    Effect("numpy: augment", "s.b += 1", "s.b.tolist()", thing="s.b",
           state="s.b = numpy.zeros(2)"),
    Effect("numpy: shared with a tensor", "s.b[0] += 3", "s.v", thing="s.v",
           state="s.b = numpy.zeros(2)\ns.v = torch.from_numpy(s.b)"),
)  # fmt: skip

COLLECTIONS: Final = (
    Effect("order of a dict: OrderedDict, move_to_end", "s.d.move_to_end(next(iter(s.d)))",
           "list(s.d)",
           thing="s.d", state="s.d = collections.OrderedDict(a=1, b=2, c=3)"),
    Effect("order of a dict: OrderedDict, first out", "s.d and s.d.popitem(last=False)",
           "list(s.d)",
           thing="s.d", state="s.d = collections.OrderedDict(a=1, b=2, c=3)"),
    Effect("collection: defaultdict", "s.d['k']", "list(s.d)", thing="s.d",
           state="s.d = collections.defaultdict(list)"),
    Effect("collection: Counter", "s.d.update('aab')", "sorted(s.d.items())", thing="s.d",
           state="s.d = collections.Counter()"),
    Effect("deque: append", "s.q.append(4)", "list(s.q)", thing="s.q",
           state="s.q = collections.deque([1, 2], maxlen=3)"),
    Effect("deque: rotate", "s.q.rotate(1)", "list(s.q)", thing="s.q",
           state="s.q = collections.deque([1, 2, 3])"),
    Effect("deque: popleft", "s.q and s.q.popleft()", "list(s.q)", thing="s.q",
           state="s.q = collections.deque([1, 2, 3])"),
    Effect("container of tensors: deque", "s.q.appendleft(y + 1)", "list(s.q)", thing="s.q",
           state="s.q = collections.deque(maxlen=2)"),
    Effect("collection: ChainMap", "s.d['a'] = 2", "dict(s.d.maps[0])", thing="s.d",
           state="s.d = collections.ChainMap({}, {'a': 1})"),
    Effect("container class: UserDict", "s.d['a'] = 2", "dict(s.d.data)", thing="s.d",
           state="s.d = collections.UserDict(a=1)"),
    Effect("container class: UserList", "s.l.append(2)", "list(s.l.data)", thing="s.l",
           state="s.l = collections.UserList([1])"),
    Effect("container class: of dict", "s.d['a'] = 2", "(list(s.d.items()), s.d.stores)",
           thing="s.d", state="s.d = Kept()\ns.d.stores = 0", setup="""
class Kept(dict):
    def __setitem__(self, key, value):
        self.stores += 1
        super().__setitem__(key, value)
"""),
    Effect("container class: of list", "s.l.append(2)", "(list(s.l), s.l.stores)",
           thing="s.l", state="s.l = Kept()\ns.l.stores = 0", setup="""
class Kept(list):
    def append(self, value):
        self.stores += 1
        super().append(value)
"""),
    Effect("order of a list: heapq", "heapq.heappush(s.l, -len(s.l))", "list(s.l)", thing="s.l",
           state="s.l = [1, 2]"),
    Effect("order of a list: bisect", "bisect.insort(s.l, 1)", "list(s.l)", thing="s.l",
           state="s.l = [1, 2]"),
    Effect("weakref: dictionary", "s.keys.append(Counted())\ns.d[s.keys[-1]] = 1", "len(s.d)",
           thing="s.d", state="s.d = weakref.WeakKeyDictionary()\ns.keys = []",
           setup="class Counted:\n    pass\n"),
    Effect("object dies: weakref", "s.o = None", "s.r() is None", thing="s.r",
           state="s.o = Counted()\ns.r = weakref.ref(s.o)", setup="class Counted:\n    pass\n"),
    Effect("object dies: callback", "s.o = None", "len(s.log)",
           state="s.o = Counted()\ns.r = weakref.ref(s.o, lambda r, log=s.log: log.append(1))",
           setup="class Counted:\n    pass\n"),
    Effect("weakref: finalizer", "weakref.finalize(s.o, s.log.append, 1)",
           "weakref.getweakrefcount(s.o)", state="s.o = Counted()",
           setup="class Counted:\n    pass\n"),
)  # fmt: skip

_LOGGING_GENERATOR: Final = """
def counting(log):
    try:
        for n in range(9):
            log.append(n)
            got = yield n
            if got:
                log.append(got)
    except KeyError:
        log.append('caught')
        yield -1
    finally:
        log.append('end')
"""


def _generator(name: str, act: str, start: str = "", kind: str = "generator") -> Effect:
    return Effect(
        f"{kind}: {name}",
        act,
        "(list(s.log), inspect.getgeneratorstate(s.g))",
        thing="s.g",
        state=f"s.g = counting(s.log)\n{start}",
        setup=_LOGGING_GENERATOR,
    )


def _iterator(name: str, made: str, *, kind: str = "iterator") -> Effect:
    """Return the effect of a step of an iterator; `made` makes it, of another one or not."""
    look = "repr(s.i)" if "count" in made else "repr(s.i.__reduce__())"
    look = "operator.length_hint(s.n)" if "s.n" in made else look
    state = f"s.n = iter([1, 2, 3])\ns.i = {made}"
    return Effect(f"{kind}: {name}", "next(s.i, None)", look, state=state)


ITERATORS: Final = (
    _generator("next", "next(s.g, None)"),
    _generator("send", "next(s.g, None)\nif s.g.gi_frame:\n    s.g.send(7)"),
    _generator("close", "s.g.close()", "next(s.g)", "end of a generator"),
    _generator("throw", "if s.g.gi_frame:\n    s.g.throw(KeyError())", "next(s.g)",
               "end of a generator"),
    _generator("read to its end", "list(s.g)", kind="end of a generator"),
    _generator("left suspended", "for n in counting(s.log):\n    if n == 1:\n        break",
               kind="end of a generator"),
    _generator("new", "s.g = counting(s.log)\nnext(s.g)"),
    Effect("generator: expression", "next(s.g, None)", "list(s.log)",
           state="s.g = (s.log.append(n) for n in range(9))"),
    _iterator("of a list", "iter([1, 2, 3])"),
    _iterator("of a range", "iter(range(9))"),
    _iterator("enumerate", "enumerate('abcdef')"),
    _iterator("reversed", "reversed([1, 2, 3])"),
    _iterator("count", "itertools.count()", kind="itertools"),
    _iterator("cycle", "itertools.cycle(s.n)", kind="itertools"),
    _iterator("map", "map(str, s.n)"),
    _iterator("zip", "zip(s.n, 'abc')"),
    _iterator("chain", "itertools.chain(s.n, [2], [3])", kind="itertools"),
    Effect("iterator: by a loop", "for n in s.i:\n    if n > 1:\n        break",
           "repr(s.i.__reduce__())", state="s.i = iter([1, 2, 3, 4, 5, 6])"),
    Effect("itertools: tee", "next(s.i[0], None)", "operator.length_hint(s.n)",
           state="s.n = iter([1, 2, 3])\ns.i = itertools.tee(s.n)"),
    Effect("generator: coroutine",
           "s.g = step(s.log)\ntry:\n    s.g.send(None)\nexcept StopIteration:\n    pass",
           "list(s.log)", state="s.g = step(s.log)", setup="""
async def step(log):
    log.append(1)
"""),
)  # fmt: skip

EFFECTS: Final = (*BUILTIN, *COLLECTIONS, *ITERATORS)
