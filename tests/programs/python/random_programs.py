"""Writes random programs and runs them: each function of them calls others in one of the ways that Python has, and some
allocate.

    random_programs.py SEED COUNT
"""

import asyncio
import ctypes
import functools
import random
import sys
import threading

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import cuda

CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
LIBC = ctypes.CDLL(None)
PY_LIBC = ctypes.PyDLL(None)


def through_c(function, depth):
    """Called by C that ctypes calls, without the GIL: `qsort`."""
    values = (ctypes.c_int * 2)(1, 2)
    # Once: an allocation of its own for each comparison would do as well, but the sort decides how many.
    calls = []

    def compare(a, b):
        if not calls:
            calls.append(1)
            function(depth)
        return 0

    LIBC.qsort(values, 2, 4, COMPARE(compare))


def through_callback(function, depth):
    """Called by C by a pointer."""
    CALLBACK(function)(depth)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


class Manager:
    def __init__(self, function, depth, at_exit):
        self.function, self.depth, self.at_exit = function, depth, at_exit

    def __enter__(self):
        if not self.at_exit:
            self.function(self.depth)
        return self

    def __exit__(self, *_):
        if self.at_exit:
            self.function(self.depth)
        return True


class Object:
    """Calls by operators, attributes, iteration and the end of its life."""

    def __init__(self, function, depth):
        self.function, self.depth = function, depth

    def __add__(self, other):
        self.function(self.depth)
        return other

    def __getitem__(self, key):
        self.function(self.depth)
        return key

    def __delitem__(self, key):
        self.function(self.depth)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        if name == "set":
            value(self.depth)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.function(self.depth)
        return name

    def __bool__(self):
        self.function(self.depth)
        return False

    def __len__(self):
        self.function(self.depth)
        return 3

    def __iter__(self):
        self.function(self.depth)
        return iter((1,))

    def __call__(self, *_):
        self.function(self.depth)

    def __format__(self, _):
        self.function(self.depth)
        return ""

    def __contains__(self, _):
        self.function(self.depth)
        return True

    def __eq__(self, _):
        self.function(self.depth)
        return True

    __hash__ = None


class Ended:
    def __init__(self, function, depth):
        self.call = function, depth

    def __del__(self):
        function, depth = self.call
        function(depth)


class Property:
    def __init__(self, function):
        self.function = function

    @property
    def value(self):
        return self.function

    @staticmethod
    def static(function, depth):
        return function(depth)

    @classmethod
    def of_class(cls, function, depth):
        return function(depth)


class Meta(type):
    def __call__(cls, function, depth):
        function(depth)
        return super().__call__()


class Made(metaclass=Meta):
    pass


async def awaited(function, depth):
    await asyncio.sleep(0)
    return function(depth)


async def agen(function, depth):
    yield function(depth)
    await asyncio.sleep(0)
    yield 2


def gen(function, depth):
    yield 1
    yield function(depth)


def gen_from(function, depth):
    return (yield from gen(function, depth))


def blank(rng):
    return [""] * rng.choice([0, 0, 0, 1, 2, 7, 140, 300])


# Each: lines of a body that calls CALLEE with `depth - 1` in some way; `@` stands for the callee.
WAYS = [
    ["@(d)"],
    ["x = (1 +", "     len(str(", "         @(d)", "     )))"],
    ["[@(d) for _ in range(1)]"],
    ["{k: @(d)", " for k in range(1)", " if k == 0}"],
    ["list(@(d)", "     for _ in range(1)", ")"],
    ["(lambda q:", "    @(q))(", "    d)"],
    ["sorted([1, 2], key=lambda k: @(d) if k == 1 else 0)"],
    ["list(map(@, [d]))"],
    ["functools.reduce(lambda a, b: (@(d), a)[1], [1, 2])"],
    ["functools.partial(@, d)()"],
    ["decorated(@)(d)"],
    ["for v in gen(@, d):", "    pass"],
    ["next(gen_from(@, d)); list(gen_from(", "    @,", "    d))"],
    ["g = gen(@, d)", "next(g)", "try:", "    g.send(None)", "finally:", "    g.close()"],
    ["try:", "    raise ValueError(", "        1)", "except ValueError as e:", "    @(d)", "finally:", "    x = 0"],
    ["try:", "    x = 1", "finally:", "    @(d)"],
    ["try:", "    try:", "        {}[1]", "    except KeyError:", "        raise RuntimeError from None", "except RuntimeError:", "    @(d)"],
    ["with Manager(@, d, False) as m:", "    x = 1"],
    ["with Manager(@, d, True):", "    raise ValueError"],
    ["with Manager(@, d, True), \\", "     Manager(@, d,", "             False):", "    x = 2"],
    ["Object(@, d) + 1"],
    ["Object(@, d)[", "    1]"],
    ["del Object(@, d)[1]"],
    ["o = Object(@, d)", "o.set = @"],
    ["x = Object(@, d).attribute"],
    ["if Object(@, d):", "    x = 1", "else:", "    x = 2"],
    ["while Object(@, d):", "    x = 1"],
    ["x = not Object(@, d)"],
    ["x = f'{Object(@, d)!s:>5}' if False else f'{Object(@, d)}'"],
    ["x = 1 in Object(@, d)"],
    ["a, = Object(@, d)"],
    ["x = [*Object(@, d)]"],
    ["x = Object(@, d) == 3 or 4"],
    ["Object(@, d)(", "    1,", "    *[2])"],
    ["len(", "    Object(@, d))"],
    ["x = Ended(@, d)", "x = None"],
    ["x = Ended(@, d)", "del x"],
    ["Property(@).value(d)"],
    ["Property.static(@, d)", "Property.of_class(@,", "                  d)"],
    ["Made(@, d)"],
    ["class Inner:", "    x = @(d)"],
    ["class Inner(Made):", "    def __init_subclass__(cls):", "        @(d)", "class Innermost(Inner):", "    pass"],
    ["exec('@(d)')"],
    ["exec(compile('\\n\\n@(d)', 'made up', 'exec'), {'@': @, 'd': d})"],
    ["eval('(1,\\n @(d))')"],
    ["asyncio.run(awaited(@, d)) if threading.current_thread() is threading.main_thread() and not in_loop() else @(d)"],
    ["through_c(@, d)"],
    ["through_callback(lambda q: @(q) or 0, d)"],
    ["t = threading.Thread(target=on_thread(@), args=(d,))", "t.start()", "t.join()"],
    ["import string; string.Template('$a').safe_substitute({'a': 1}); @(d)"],
    ["getattr(sys.modules[__name__], '@')(d)"],
    ["x = 1 if (", "    @(d)", ") else 2"],
    ["assert not @(d), (", "    'no')"],
    ["return @(d)"],
    ["return (", "    1,", "    @(", "        d", "    ),", ")"],
    ["def inner(n):", "    if n:", "        inner(n - 1)", "    else:", "        @(d)", "inner(rng.randrange(30))"],
    ["def outer():", "    v = d", "    def closed(w=1):", "        nonlocal v", "        v = @(v)", "    return closed", "outer()()"],
    ["print_to(lambda text: @(d))"],
    ["any(@(d) for _ in range(2))"],
    ["max([1, 2], key=lambda v: @(d) or v)"],
    ["'abc'.translate(Table(@, d))"],
    ["import re; re.sub('b', lambda m: (@(d), 'x')[1], 'abc')"],
    ["(x for x in Object(@, d))"],
    ["x: int = @(d)"],
    ["async def co():", "    async for v in agen(@, d):", "        pass", "    [v async for v in agen(@, d)]", "drive(co())"],
    ["async def co():", "    async with Async(@, d):", "        await awaited(@, d)", "drive(co())"],
    ["async def co():", "    return await asyncio.gather(awaited(@, d), awaited(@, d))", "drive(co())"],
]
if sys.version_info >= (3, 10):
    WAYS += [
        ["match Object(@, d):", "    case [a, b, c]:", "        x = 1", "    case Object(attribute='attribute'):", "        x = 2", "    case _:", "        x = 3"],
        ["match d:", "    case n if @(n):", "        x = 1", "    case (", "        0 | 1", "    ):", "        x = 2", "    case _:", "        @(d)"],
    ]
if sys.version_info >= (3, 11):
    WAYS += [["try:", "    raise ExceptionGroup('g', [ValueError(1)])", "except* ValueError:", "    @(d)"]]
if sys.version_info >= (3, 12):
    WAYS += [
        ["x = f'{", "    @(d)", "    !r}'"],
        ["def generic[T](v: T):", "    @(v)", "generic(d)"],
        ["type Alias = @(d)", "Alias.__value__"],
    ]
WAYS = [way for way in WAYS if not any(line.startswith("x = f'{Object(@, d)!s") for line in way)] + [
    ["x = f'{Object(@, d)}'"],
    ["x = f'''", "{Object(@, d)}", "'''"],
]


class Async:
    def __init__(self, function, depth):
        self.call = function, depth

    async def __aenter__(self):
        function, depth = self.call
        function(depth)

    async def __aexit__(self, *_):
        await asyncio.sleep(0)
        function, depth = self.call
        function(depth)


class Table(dict):
    def __init__(self, function, depth):
        self.function, self.depth = function, depth

    def __missing__(self, key):
        if key == 97:
            self.function(self.depth)
        return None


def in_loop():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def drive(coroutine):
    """Runs it in a loop, or by hand within one."""
    if in_loop() or threading.current_thread() is not threading.main_thread():
        coroutine.close()
        return
    asyncio.run(coroutine)


def print_to(function):
    class File:
        def write(self, text):
            if text.strip():
                function(text)

        def flush(self):
            pass

    print("x", file=File())


def on_thread(function):
    def run(depth):
        cuda.on_thread()
        function(depth)

    return run


def program(rng, number):
    """The source of a module with functions `f0`, `f1`, … of which each calls later ones."""
    count = rng.randrange(2, 6)
    lines = ["\n" * rng.randrange(40)]
    for index in range(count):
        name = f"f{number}_{index}"
        if rng.random() < 0.3:
            lines += ["@decorated"]
        if rng.random() < 0.15:
            # A letter that is no ASCII, and one that needs more than two bytes.
            lines += [f"class Kö{number}_{index}:", "    '𝒻'", "    @staticmethod", f"    def {name}(depth):"]
            indent, after = "        ", [f"{name} = Kö{number}_{index}.{name}"]
        else:
            lines += [f"def {name}(depth", *blank(rng), "        ):"]
            indent, after = "    ", []
        body = ["d = depth - 1", *blank(rng)]
        if index + 1 == count or rng.random() < 0.35:
            body += blank(rng) + rng.choice([
                ["hit(depth)"],
                ["hit(", "    depth", ")"],
                ["x = [hit(v)", "     for v in range(2)]"],
                ["for v in range(2):", "    hit(v)"],
            ])
        if index + 1 < count:
            for _ in range(rng.randrange(1, 3)):
                callee = f"f{number}_{rng.randrange(index + 1, count)}"
                way = [line.replace("@", callee) for line in rng.choice(WAYS)]
                is_last = way[0].startswith("return")
                body += blank(rng) + way
                if is_last:
                    break
        lines += [indent + line if line else "" for line in body] + after + blank(rng)
    return "\n".join(lines) + "\n", f"f{number}_0"


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    cuda.start()
    recorder = cuda.Recorder()
    given = dict(globals(), hit=recorder.hit, __name__="__main__")
    failed = 0
    for number in range(seed, seed + count):
        rng = random.Random(number)
        source, first = program(rng, number)
        given["rng"] = rng
        # The same name now and then: such code is freed, and other code made at its addresses.
        name = f"/made/{'program' if number % 3 else number}.py"
        exec(compile(source, name, "exec"), given)
        # By name in the module, too.
        globals().update({key: value for key, value in given.items() if key.startswith(f"f{number}_")})
        try:
            given[first](5)
        except Exception:  # A comparison with None, as the programs are random.
            failed += 1
        for key in [key for key in given if key.startswith((f"f{number}_", f"Kö{number}_"))]:
            del given[key]
            globals().pop(key, None)
        if number % 50 == 49:
            recorder.flush()
    recorder.flush()
    print(f"# programs {count} failed {failed}")


if __name__ == "__main__":
    main()
