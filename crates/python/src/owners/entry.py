# The call of the library: entry(blocks, budget_s, is_thorough, slots, collectable) -> text

CELL = type((lambda value: lambda: value)(0).__closure__[0])
NAMED, PARAMETER, BUFFER, GRADIENT, STATE, GRAPH, UNREACHABLE, UNKNOWN = "npbgsauc"
newest_before = [0]  # the sequence number of the newest node that the last walk saw
named_before = set()  # functions that named something: they come first in the next walk, so that names stay

def variables_of(frame, code, slots):
    """The variables of a running frame. Before 3.13 `slots` reads them: f_locals would keep the values alive as long as the frame."""
    if not code.co_flags & 1:  # of a module or a class body: these are looked at elsewhere
        return {}
    if PROXY:
        view = frame.f_locals
        return {name: view[name] for name in view.keys()}
    own, cells = code.co_varnames, code.co_cellvars
    names = own + (cells if OLD else tuple([name for name in cells if name not in own])) + code.co_freevars
    found = {}
    for name, value in zip(names, slots(frame, len(names), slots)):
        if type(value) is CELL and (name in cells or name in code.co_freevars):
            value = (refer(value) or (slots,))[0]
        if value is not slots:
            found[name] = value
    return found

def stacks(slots):
    """(thread, function, file, line, variables) of every frame but our own, the innermost of a thread first."""
    frames, ours = [], stacks.__code__.co_filename
    for thread, frame in sys._current_frames().items():
        while frame is not None:
            code = frame.f_code
            if code.co_filename != ours:
                name = getattr(code, "co_qualname", code.co_name)
                frames.append((thread, name, code.co_filename, frame.f_lineno or 0, variables_of(frame, code, slots)))
            frame = frame.f_back
    return frames

def main_graph(graphs):
    """Path and root of the tensor that holds most of all nodes of autograd graphs; two empty texts if none has nine tenths."""
    nodes = {}
    for _, path, root, count, _ in graphs:
        nodes[path, root] = nodes.get((path, root), 0) + count
    most = max(nodes, key=nodes.get)
    return most if nodes[most] >= .9 * sum(nodes.values()) else ("", "")

def entry(blocks, budget_s, is_thorough, slots, collectable):
    """The owners of device memory, as text: a line of objects seen, nanoseconds, whether the time was up (1), whether the collector is on (1),
    whether every node of an autograd graph is younger than the last walk (1); then for each block address, kind, path and root. `blocks`: begin
    and end of each, sorted, as 64-bit numbers. `slots(frame, count, unset)`: the first variables of a frame. `collectable(get_objects,
    types, microseconds)`: those of these types that only unreachable objects refer to."""
    if OLD and (sys.gettrace() or sys.getprofile()):  # they would see the walk; since 3.11 the library has them wait
        newest_before[0] = UNLIMITED
        return "0\t0\t1\t%d\t0" % gc.isenabled()
    words = memoryview(blocks).cast("Q")
    wanted = (words[::2].tolist(), words[1::2].tolist())
    started = time.perf_counter()
    owners, facts = walk(stacks(slots), wanted, budget_s, named_before, is_thorough, collectable)
    lines = []
    for (address, _, path, root), kind in zip(owners, facts["kinds"]):
        lines.append("%x\t%s\t%s\t%s" % (address, kind, path, root))
        named_before.add(root.rpartition(":")[0])
    if not facts["stopped"]:
        path, root = main_graph(facts["graphs"]) if facts["graphs"] else ("", "")
        rest = (GRAPH, path, root) if facts["graphs"] else (UNKNOWN, "", "")
        for block in facts["missing"]:
            told = (UNREACHABLE, "", "") if block in facts["unreachable"] else rest
            if told[0] != UNKNOWN or facts["certain"]:
                lines.append("%x\t%s\t%s\t%s" % ((wanted[0][block - 1],) + told))
    if len(named_before) > 1000:
        named_before.clear()
    oldest, newest = facts["ages"]
    is_new, newest_before[0] = oldest > newest_before[0], newest if oldest and not facts["stopped"] else UNLIMITED
    took = int((time.perf_counter() - started) * 1e9)
    return "\n".join(["%d\t%d\t%d\t%d\t%d" % (facts["objects"], took, facts["stopped"], gc.isenabled(), is_new)] + lines)
