"""What an object holds, and by which names: the first half of the program that walk.py is the second half of."""
import gc
import sys
import time

OLD, PROXY = sys.version_info < (3, 11), sys.version_info >= (3, 13)
CHUNK, KEYS, TEXT, NODES, DICTS, DEEP = 4096, 64, 160, 200000, 64, 4
LIBRARY_FRAME, USER_MODULE, THREAD, PRIVATE, UNLIMITED, NEVER, LEAF = 6, 3, 4, 3, 1 << 60, 2147483647, False
HEAP, COLLECTED = 1 << 9, 1 << 14
refer, clock, attribute, MODULE, FUNCTION = gc.get_referents, time.perf_counter, object.__getattribute__, type(sys), type(lambda: 0)
type_dict, type_mro, type_name, type_module, type_flags = (
    type.__dict__[n].__get__ for n in ("__dict__", "__mro__", "__name__", "__module__", "__flags__"))
module_dict, error_parts = MODULE.__dict__["__dict__"].__get__, [
    ("." + n, BaseException.__dict__[n].__get__) for n in ("__traceback__", "__cause__", "__context__", "args")]
GETSET, MEMBER, METHOD = type(type.__dict__["__dict__"]), type(FUNCTION.__dict__["__closure__"]), type(str.join)
PROPER = frozenset(("_parameters", "_buffers", "_modules", "state", "param_groups"))
ON_STACK = ("iterator", "generator", "coroutine", "enumerate", "zip", "map", "Iter", "wrapper", "method", "function", "Future", "Task", "anext")

class Walk:
    __slots__ = ("seen leaf user classed types parents labels roots next_o next_n next_k states graphs kinds infos sure maybe found sizes special modules "
                 "child nodes edges known readers torch steps keys cost count stopped dicts limit deep begins ends ages").split()

def plain(name):
    return type(name) is str and 0 < len(name) < 42 and name.isascii() and name[0] != "." and name.replace(".", "_").isidentifier()

def step(name):
    return "." + name if plain(name) else ".<attribute>"

def key_step(name):  # layers.0.weight, as in a state dict, is layers[*].weight
    return "['" + ".".join(["[*]" if p.isdigit() else p for p in name.split(".")]).replace(".[*]", "[*]") + "']" if plain(name) else "[*]"

def late(w):
    w.stopped = w.stopped or clock() > w.limit
    return w.stopped

def kind_of(w, value):
    kind = w.kinds.get(id(type(value)))
    return classify(w, type(value)) if kind is None else kind

def pass_on(error, of_library=False):
    """Raises again what a signal handler of the program has raised meanwhile: unlike what the walk runs into, it has a frame of its own."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    path = trace.tb_frame.f_code.co_filename
    if path != pass_on.__code__.co_filename and not (of_library and not users(path)):
        raise error

def push(w, value, parent, label, more=1):
    """A step. One of cost 1 is final, as no shorter way can come later; a longer one waits, and is looked at when its turn comes."""
    kind = kind_of(w, value)
    if kind is LEAF or id(value) in w.seen or w.cost + more > w.deep:
        return
    if more > 1:
        for part, item in zip(w.maybe.setdefault(w.cost + more, ([], [], [])), (value, parent, label)):
            part.append(item)
    else:
        enter(w, value, kind, parent, label)

def enter(w, value, kind, parent, label):
    w.seen.add(id(value))
    w.parents.append(parent)
    w.labels.append(label)
    if kind is h_tensor:  # at once: the queue holds no tensors
        h_tensor(w, value, len(w.labels) - 1)
    else:
        w.next_o.append(value)
        w.next_n.append(len(w.labels) - 1)
        w.next_k.append(kind)

def run(w):
    """Breadth first, by cost."""
    while (w.sure or w.maybe) and not w.stopped:
        cost = min(list(w.sure) + list(w.maybe))
        w.cost, (w.next_o, w.next_n, w.next_k) = cost, w.sure.pop(cost, None) or ([], [], [])
        for value, parent, label in zip(*w.maybe.pop(cost, ())):
            if id(value) not in w.seen:
                enter(w, value, kind_of(w, value), parent, label)
        objects, nodes, kinds, count = w.next_o, w.next_n, w.next_k, len(w.next_o)
        w.next_o, w.next_n, w.next_k = w.sure[cost + 1] = ([], [], [])
        objects.reverse()
        nodes.reverse()
        kinds.reverse()
        while objects:
            value = objects.pop()  # nothing is held that was looked at
            try:
                kinds.pop()(w, value, nodes.pop())
            except Exception as error:  # it changed under the walk, or is of a kind that lies
                pass_on(error)
            if not len(objects) & 63 and late(w):
                break
        w.count, value = w.count + count - len(objects), None
        if not w.next_o:
            del w.sure[cost + 1]
    w.sure.clear()
    w.maybe.clear()

# Containers

def twice(take, value):
    """A copy by one call in C. If another thread changed the size meanwhile: once more, and then nothing."""
    try:
        return list(take(value))
    except RuntimeError as error:
        pass_on(error)
        try:
            return list(take(value))
        except RuntimeError as error:
            pass_on(error)
            return []

def pairs(value):
    """Keys and values, without a tuple for each of many: they would count towards a collection."""
    if dict.__len__(value) <= 16:
        return twice(dict.items, value)
    keys, values = twice(dict.__iter__, value), twice(dict.values, value)
    if len(keys) != len(values):
        keys, values = twice(dict.__iter__, value), twice(dict.values, value)
    return zip(keys, values)

def spread(w, values, node, label="[*]"):
    """The elements of a private list, all by one step: the inner loop of the walk."""
    kinds, seen, parents, labels = w.kinds, w.seen, w.parents, w.labels
    if not values or w.cost >= w.deep or len(values) > 4 and w.leaf.issuperset(map(id, map(type, values))):
        return
    for value in values:
        kind = kinds.get(id(type(value)))
        if kind is None:
            kind = classify(w, type(value))
        if kind is LEAF or id(value) in seen:
            continue
        seen.add(id(value))
        parents.append(node)
        labels.append(label)
        if kind is h_tensor:
            h_tensor(w, value, len(labels) - 1)
        else:
            w.next_o.append(value)
            w.next_n.append(len(labels) - 1)
            w.next_k.append(kind)

def named(w, node, items, library, steps, make):
    """Values by name, or by key. A torch.nn.Module and an Optimizer are recognised by their attributes."""
    kinds, seen, parents, labels, put, put_node, put_kind = w.kinds, w.seen, w.parents, w.labels, w.next_o.append, w.next_n.append, w.next_k.append
    proper = {}
    if w.cost >= w.deep:
        return proper
    for name, item in items:
        kind = kinds.get(id(type(item)))
        if kind is None:
            kind = classify(w, type(item))
        if type(name) is not str:
            push(w, name, node, ".<key>", 4)
        if kind is LEAF or id(item) in seen:
            continue
        label = steps.get(name) if type(name) is str else "[*]"
        if label is None:
            if name in PROPER and make is step:
                proper[name] = item
                continue
            label = steps[name] = make(name)
        if library and name[:1] == "_":
            push(w, item, node, label, PRIVATE)
        elif kind is h_tensor:
            enter(w, item, kind, node, label)
        else:
            seen.add(id(item))
            parents.append(node)
            labels.append(label)
            put(item)
            put_node(len(labels) - 1)
            put_kind(kind)
    return proper

def h_list(w, value, node):
    size = list.__len__(value)
    if size <= CHUNK:
        return spread(w, list.copy(value), node)
    for start in range(0, size, CHUNK):
        spread(w, list.__getitem__(value, slice(start, start + CHUNK)), node)
        if late(w):
            break

def h_tuple(w, value, node):
    values = value if type(value) is tuple else tuple.__getitem__(value, slice(None))
    for base in () if type(value) is tuple else type_mro(type(value)):
        fields = type_dict(base).get("_fields")
        if type(fields) is tuple and len(fields) == len(values):
            for name, item in zip(fields, values):
                push(w, item, node, step(name))
    spread(w, values, node)

def h_set(w, value, node):
    spread(w, twice(set.__iter__, value), node)

def h_frozenset(w, value, node):
    spread(w, twice(frozenset.__iter__, value), node)

def h_deque(w, value, node):
    spread(w, twice(look("_collections")["deque"].__iter__, value), node)

def h_dict(w, value, node):
    if dict.__len__(value) <= KEYS:
        for name, item in named(w, node, pairs(value), False, w.keys, key_step).items():
            push(w, item, node, key_step(name))
    else:  # data, not structure: no keys are shown
        spread(w, twice(dict.values, value), node)
        spread(w, twice(dict.__iter__, value), node, ".<key>")

def h_local(w, value, node):  # threading.local has a dict of the dicts of all threads
    for part in refer(value):
        for inner in twice(dict.values, part) if type(part) is dict else ():
            if type(inner) is dict:
                fields(w, inner, node, pairs(inner), False)

def h_cache(w, value, node):  # functools.lru_cache: keys and results are referents of the wrapper, or in its dict
    for part in refer(value):
        if type(part) is dict:
            spread(w, twice(dict.values, part), node, ".<cache>[*]")
            spread(w, twice(dict.__iter__, part), node, ".<cache>.<key>")
        else:
            push(w, part, node, ".__wrapped__" if type(part) is FUNCTION else ".<cache>[*]")

def h_through(w, value, node):  # cells and mapping proxies are no step of their own
    spread(w, refer(value), node, "")

# Code and frames

def h_function(w, value, node):
    closure, space = value.__closure__, value.__globals__
    for name, cell in zip(value.__code__.co_freevars, closure or ()):
        push(w, cell, node, ".<closure " + name + ">")
    spread(w, value.__defaults__ or (), node, ".<default>")
    for part in refer(value):  # keyword defaults, and attributes if there are any (asking for __dict__ would make one)
        if type(part) is dict and part is not space:
            fields(w, part, node, pairs(part), False)
    if type(space) is dict:  # a namespace that is no module's
        push(w, space, node, ".__globals__", PRIVATE)

def variables(w, code, parts, node, finished):
    """Of a frame by its referents: after its code (before 3.11 its builtins and globals, too) come variables that are set, then the stack.
    If as many are set as there are names, all names are certain; else those of the arguments."""
    at = max([i for i, part in enumerate(parts[:6]) if part is code] + [-1]) + 1
    values = parts[at + 2 if OLD else at:] if at else []
    n, cells, arguments = len(values), code.co_cellvars, code.co_argcount + code.co_kwonlyargcount
    arguments += sum(map(bool, (code.co_flags & 4, code.co_flags & 8)))
    own = code.co_varnames
    names = tuple([v for v in own if v not in cells]) + cells if OLD else own + tuple([v for v in cells if v not in own])
    names = names + code.co_freevars
    while not finished and n > arguments and is_left_over(values[n - 1]):
        n -= 1
    if n != len(names):
        names = [name for name in own[:arguments] if not OLD or name not in cells]
    for i, value in enumerate(values):
        known = i < min(n, len(names))
        push(w, value, node, local(code, names[i] if known else ""), 1 if known else 2)

def is_left_over(value):
    """Of a suspended frame: what loops and awaits work on; exceptions being handled, and None once it has handled one, also one of a walk
    while it ran. A variable may have such a value, too: then its name is not certain."""
    kind = type(value)
    return value is None or type_name(kind).endswith(ON_STACK) or any(base is BaseException for base in type_mro(kind))

def local(code, name):
    return "." + (code.co_name if plain(code.co_name) else "<code>") + "()." + (name if plain(name) else "<local>")

def h_generator(w, value, node):
    kind = type_name(type(value))[0]
    code, frame = attribute(value, GENERATOR[kind] + "code"), OLD and attribute(value, GENERATOR[kind] + "frame")
    if frame is not None:
        w.seen.add(id(frame))
        variables(w, code, refer(frame if OLD else value), node, False)

def h_frame(w, value, node):
    code = value.f_code
    if not code.co_flags & 1:
        push(w, value.f_globals, node, ".__globals__")
    elif PROXY:  # since 3.13 f_locals is a view that leaves nothing behind; before, a dict that keeps the values alive
        view = value.f_locals
        for name in view.keys():
            push(w, view[name], node, local(code, name))
    else:
        variables(w, code, refer(value), node, True)

def h_traceback(w, value, node):
    for _ in range(500):
        push(w, value.tb_frame, node, "")
        value = value.tb_next
        if value is None:
            break
        w.seen.add(id(value))

# Objects with attributes

def info_of(w, T):
    """(slots, getter of __dict__, names that instances have, whether a library's class, the step to what has no name)"""
    info = w.infos.get(id(T))
    if info is None:
        slots, spaces, module, name = [], [], "", type_name(T)
        for base in type_mro(T):
            own = refer(type_dict(base))[0]
            slots += [[key, step(key), value.__get__] for key, value in pairs(own) if type(value) is MEMBER and key != "__dict__"]
            spaces += [value.__get__ for key, value in pairs(own) if type(value) in (GETSET, MEMBER) and key == "__dict__" and base is not type]
        try:
            module = type_module(T)
        except Exception as error:
            pass_on(error)
        library = type(module) is str and module.partition(".")[0] not in w.user and (module in sys.modules or module == "builtins")
        info = w.infos[id(T)] = [slots, spaces[0] if spaces else None, [], library, ".<" + (name if plain(name) else "?") + ">"]
    return info

def undescribed(T, name):
    """Whether object.__getattribute__ of this name can run nothing: no class has a descriptor of that name."""
    found = class_attribute(T, name)
    return not any(["__get__" in type_dict(base) for base in type_mro(type(found))])

def class_attribute(T, name):
    for base in type_mro(T):
        value = type_dict(base).get(name)
        if value is not None:
            return value

def h_object(w, value, node):
    attributes(w, value, node, refer(value))

def attributes(w, value, node, parts, whole=True):
    """What an object holds, by names. Its referents are looked at first, since asking for __dict__ makes one where there is none (since 3.11
    most objects have none): that is done for a few of each type, and the others are asked by the names which these have."""
    T = type(value)
    slots, getter, names, library, other = w.infos.get(id(T)) or info_of(w, T)
    if not library and id(T) not in w.classed:
        w.classed.add(id(T))
        push(w, T, node, ".__class__", 2)
    if not slots and getter and len(parts) <= 2 and type(parts[0]) is dict and (OLD or not names):
        space = getter(value)
        w.seen.add(id(space))
        return fields(w, value, node, pairs(space), library)
    leaf, rest, items = w.leaf, {}, []
    for part in parts:
        if id(type(part)) not in leaf and part is not T and kind_of(w, part) is not LEAF:
            rest[id(part)] = part
    if not rest or w.cost >= w.deep:
        return
    for name, label, get in slots:
        try:
            item = get(value)
        except Exception as error:
            pass_on(error)
            continue
        if rest.pop(id(item), None) is not None:
            push(w, item, node, label, PRIVATE if library and name[0] == "_" else 1)
    for name in names if rest else ():
        try:
            item = attribute(value, name)
        except AttributeError as error:
            pass_on(error)
            continue
        if rest.pop(id(item), None) is not None:
            if library or name in PROPER:
                items.append((name, item))
            elif id(item) not in w.seen:
                enter(w, item, kind_of(w, item), node, w.steps.get(name) or step(name))
            if not rest:
                break
    dicts = rest and getter and any([type(part) is dict for part in rest.values()])
    if dicts or rest and getter and not OLD and w.dicts > 0:
        space = getter(value)
        w.dicts -= id(space) not in rest
        rest.pop(id(space), None)
        w.seen.add(id(space))
        items = pairs(space)
        for name, item in pairs(space):
            held = rest.pop(id(item), None) is not None or kind_of(w, item) is not LEAF
            if held and not OLD and len(names) < KEYS and plain(name) and name not in names and undescribed(T, name):
                names.append(name)
    if items:
        fields(w, value, node, items, library)
    for part in rest.values() if whole else ():
        push(w, part, node, other)

def fields(w, value, node, items, library):
    proper = named(w, node, items, library, w.steps, step)
    if len(proper) > 1 and "_parameters" in proper and "_buffers" in proper and "_modules" in proper:
        w.modules[id(value)] = node
        for part in ("_parameters", "_buffers", "_modules"):
            inner = proper.pop(part)
            w.seen.add(id(inner))
            for name, item in pairs(inner):
                label = "[*]" if not plain(name) else "." + name
                if part == "_modules":
                    w.child.setdefault(id(item), (id(value), label))
                push(w, item, node, label)
                if w.torch and kind_of(w, item) is h_tensor:
                    w.special.setdefault(bounds(w, item)[0], (id(value), label, BUFFER if part == "_buffers" else PARAMETER))
                    gradient = gradient_of(w, item)
                    if gradient is not None:
                        w.special.setdefault(bounds(w, gradient)[0], (id(value), label + ".grad", GRADIENT))
    elif "param_groups" in proper and dict in type_mro(type(proper.get("state"))):
        for tensor, state in pairs(proper["state"]):
            for name, item in pairs(state) if type(state) is dict and kind_of(w, tensor) is h_tensor else ():
                if kind_of(w, item) is h_tensor and plain(name):
                    w.states[bounds(w, item)[0]] = (bounds(w, tensor)[0], name)
    for name, item in proper.items():
        push(w, item, node, step(name), PRIVATE if library and name[0] == "_" else 1)

def h_exception(w, value, node):
    for label, get in error_parts:
        push(w, get(value), node, label)
    attributes(w, value, node, [part for part in refer(value) if id(part) not in w.seen])

def container(take):
    """For subclasses of containers: first what has a name (before the elements among the referents are slots and __dict__), then elements."""
    def both(w, value, node):
        attributes(w, value, node, refer(value)[:len(info_of(w, type(value))[0]) + 2], False)
        take(w, value, node)
    return both
