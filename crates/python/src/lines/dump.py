"""Tables of lines, and what the interpreter makes of them: one code object a line."""

import collections, contextlib, dataclasses, argparse, random, sys, textwrap, types, asyncio.base_events, email.message

random.seed(1)


def lines(code):
    """The line of each instruction of two bytes."""
    found = ["-"] * (len(code.co_code) // 2)
    if hasattr(code, "co_lines"):
        for begin, end, line in code.co_lines():
            for at in range(begin // 2, end // 2):
                found[at] = "-" if line is None else str(line)
    else:
        import dis

        starts = dict(dis.findlinestarts(code))
        # Only these are told; a line that follows without a change has no start of its own.
        line = code.co_firstlineno
        for at in range(len(found)):
            line = starts.get(2 * at, line)
            found[at] = str(line)
    return found


def dump(code, seen):
    if code in seen:
        return
    seen.add(code)
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    print(code.co_name, code.co_firstlineno, table.hex() or "", *lines(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            dump(constant, seen)


def made(number):
    """A function with lines far apart, long expressions, and statements that go back."""
    body = [f"def f{number}(a, b):"]
    for _ in range(random.randrange(1, 12)):
        body += [""] * random.choice([0, 0, 1, 3, 150, 400])
        kind = random.randrange(6)
        if kind == 0:
            body += ["    for i in range(a):", "        if i % 3:", "            continue", "        b += i"]
        elif kind == 1:
            body += ["    try:", "        a = [x", "             for x", "             in range(b)]", "    except ValueError as e:", "        raise", "    finally:", "        b = 1"]
        elif kind == 2:
            body += ["    a = (b +", *["         b * (a -"] * 5, "         1" + ")" * 5 + ")"]
        elif kind == 3:
            body += ["    with open(a) as g:", "        yield g,", "        b = lambda: (a,", "", "            b)"]
        elif kind == 4:
            body += ["    a = " + " + ".join(f"b.c{n}(a)" for n in range(random.randrange(90)))  + "0"] if False else ["    a = " + " + ".join(["b"] * random.randrange(1, 300))]
        else:
            body += ["    b = {", "        'a': a,", "", "        'b': [", "            b(", "                a", "            ),", "        ],", "    }"]
    return compile("\n" * random.randrange(300) + "\n".join(body), "made", "exec")


seen = set()
for module in [collections, contextlib, dataclasses, argparse, random, textwrap, types, asyncio.base_events, email.message]:
    with open(module.__file__, encoding="utf-8") as file:
        dump(compile(file.read(), module.__file__, "exec"), seen)
for number in range(200):
    dump(made(number), seen)
