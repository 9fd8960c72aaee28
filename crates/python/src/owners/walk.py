"""By which name the program reaches each tensor: walk(frames, wanted, budget_s, before=(), is_thorough=False, collectable=None) -> (owners, facts).

Runs inside foreign processes: calls nothing of the program, holds nothing afterwards, starts no collection. Objects are asked through
built-in types' own descriptors, and told apart by id() and id(type()), since a metaclass may have a __hash__. More in README.md."""
# Tensors. TABLE has (module, name of a type, function that gives address and bytes): looked up in sys.modules at each walk

def c_attribute(value, name):
    found = class_attribute(type(value), name)
    if type(found) not in (GETSET, MEMBER):
        raise AttributeError(name)
    return found.__get__(value)

def own_attribute(value, name):
    if not undescribed(type(value), name):
        raise AttributeError(name)
    return attribute(value, name)

def of_torch(w, value):
    storage = w.torch["storage"](value)
    return storage.data_ptr(), storage.nbytes()

def of_cupy(w, value):
    memory = c_attribute(c_attribute(value, "data"), "mem")
    return c_attribute(memory, "ptr"), c_attribute(memory, "size")

def of_numba(w, value):
    memory = own_attribute(value, "gpu_data")
    try:
        memory = own_attribute(memory, "_view")
    except AttributeError as error:
        pass_on(error)
    pointer = own_attribute(memory, "device_pointer")
    return pointer if type(pointer) is int else c_attribute(pointer, "value"), own_attribute(memory, "size")

TABLE = [("torch._C", "TensorBase", of_torch), ("torch._C", "_TensorBase", of_torch), ("cupy", "ndarray", of_cupy),
         ("numba.cuda.cudadrv.devicearray", "DeviceNDArrayBase", of_numba)]

def bounds(w, value):
    try:
        address, size = w.readers[id(type(value))](w, value)
        return (address, size) if type(address) is int and type(size) is int else (0, 0)
    except Exception as error:  # fake, functional, meta, freed
        pass_on(error, True)
        return 0, 0

def wants(w, address):
    low, high = 0, len(w.begins)
    while low < high:
        middle = (low + high) // 2
        if w.begins[middle] <= address:
            low = middle + 1
        else:
            high = middle
    return low if low and address < w.ends[low - 1] else 0  # the number of the block

def gradient_of(w, value):
    try:  # .grad of a tensor that is no leaf warns
        return w.torch["grad"](value) if w.torch["is_leaf"](value) or w.torch["retains_grad"](value) else None
    except Exception as error:
        pass_on(error)
        return None

def h_tensor(w, value, node):
    w.count += 1
    address, size = bounds(w, value)
    if address and address not in w.found and (w.begins is None or wants(w, address)):
        w.found[address], w.sizes[address] = node, size
    if w.torch and w.readers[id(type(value))] is of_torch:
        gradient = gradient_of(w, value)
        if gradient is not None:
            push(w, gradient, node, ".grad")
        try:
            function = w.torch["grad_fn"](value)
        except Exception as error:
            pass_on(error)
            function = None
        if function is not None:
            graph(w, function, node)
    parts = refer(value)
    if len(parts) > 1 or parts and parts[0] is not type(value):
        attributes(w, value, node, parts)

def graph(w, function, node):
    """Down an autograd graph, without its saved tensors. A node's wrapper is made anew unless somebody holds it: so they are held."""
    stack, count, leaves = [function], 0, {}
    while stack and len(w.nodes) < NODES and not (count & 63 == 63 and late(w)):
        function = stack.pop()
        if id(function) in w.nodes:
            continue
        w.nodes[id(function)], T, count = function, type(function), count + 1
        if id(T) not in w.edges:
            w.types.append(T)
            python = any([base is w.torch["python"] for base in type_mro(T)])
            number = class_attribute(T, "_sequence_nr")
            w.edges[id(T)] = (class_attribute(T, "next_functions"), class_attribute(T, "variable"), python, type(number) is METHOD and number)
        following, variable, python, number = w.edges[id(T)]
        try:
            age = number(function) if number else 0
            if age < w.ages[0]:
                w.ages[0] = age
            if w.ages[1] < age < UNLIMITED:  # that of AccumulateGrad is the highest number there is
                w.ages[1] = age
            if type(following) in (GETSET, MEMBER):
                stack.extend([pair[0] for pair in following.__get__(function) if pair[0] is not None])
            if type(variable) in (GETSET, MEMBER):
                leaves[bounds(w, variable.__get__(function))[0]] = None
        except Exception as error:
            pass_on(error)
            continue
        if python:  # a Function of the program: what its ctx holds has names
            push(w, function, node, ".grad_fn", 2)
    if stack:  # not all was seen: how old the oldest is, is not known
        w.ages[0] = 0
    if count:
        w.graphs.append((node, count, [address for address in leaves if address]))

def h_node(w, value, node):
    graph(w, value, node)
    attributes(w, value, node, refer(value))

# Types, roots and names

def h_type(w, value, node):
    """Class attributes; of a library's class only containers and objects."""
    library = info_of(w, value)[3]
    for name, item in pairs(refer(type_dict(value))[0]) if type_flags(value) & HEAP else ():
        kind = kind_of(w, item)
        told = type(name) is str and (name[:2] != "__" or kind is h_function) and name[:5] != "_abc_"
        if told and kind is not LEAF and (kind in PLAIN or not library):
            push(w, item, node, step(name), PRIVATE if library and name[:1] == "_" else 1)
    for base in () if library else type_mro(value)[1:]:
        push(w, base, node, "", 2)

def classify(w, T):
    """The handler of a type, found once per walk."""
    kind, collected = None, type_flags(T) & COLLECTED
    for base in type_mro(T):
        kind = w.known.get(id(base))
        if kind is not None:
            if base is not T and base is not MODULE:
                kind = SUBCLASS.get(kind, kind) or (h_object if collected else LEAF)
            if kind is h_tensor:
                w.readers[id(T)] = w.readers[id(base)]
            break
    if kind is None:
        node = w.torch and type(class_attribute(T, "next_functions")) in (GETSET, MEMBER)
        kind = h_node if node else h_object if collected else LEAF
    if kind is LEAF:
        w.leaf.add(id(T))
    w.types.append(T)  # so that its id stays its own
    w.kinds[id(T)] = kind
    return kind

def look(name):
    module = sys.modules.get(name)
    return module_dict(module) if module is not None and MODULE in type_mro(type(module)) else {}

def classes(w):
    """Types of the language, and those that somebody has imported."""
    w.known.update(KNOWN)
    for module, name, kind in (("_collections", "deque", h_deque), ("_collections", "OrderedDict", h_dict),
                               ("_thread", "_local", h_local), ("functools", "_lru_cache_wrapper", h_cache)):
        w.known[id(look(module).get(name))] = kind
    for module, name, reader in TABLE:
        T = look(module).get(name)
        if T is not None and type in type_mro(type(T)):
            w.known[id(T)], w.readers[id(T)], own = h_tensor, reader, type_dict(T)
            if reader is of_torch and not w.torch:
                for part in ("grad", "grad_fn", "is_leaf", "retains_grad"):
                    w.torch[part] = own[part].__get__ if type(own.get(part)) in (GETSET, MEMBER) else nothing
                w.torch.update(storage=own.get("untyped_storage") or own.get("_storage"), python=look(module).get("_FunctionBase"))
    w.known.pop(id(None), None)

def nothing(value):
    return None

def users(path):
    """Whether a file is the user's own: neither installed nor of the standard library."""
    library = (look("os").get("__file__") or "?/?").rpartition("/")[0] + "/"
    return type(path) is str and not (path.startswith(("<frozen", library)) or "/site-packages/" in path or "/dist-packages/" in path)

def root(w, text, names, offset):
    w.roots.append(text)
    for name, value in names:
        if type(name) is str and (name[:2] != "__" or name[-2:] != "__"):
            push(w, value, -len(w.roots), name if plain(name) or name in ("<thread>", "<task>") else "[*]", offset)

known_modules = {}  # by name: ids of a module and of its dict, and whether it is the user's

def begin(w, frames, before):
    ranks, order = {}, []
    for i, (thread, function, path, line, names) in enumerate(frames):
        where = function + " " + path.rpartition("/")[2]
        order.append((where not in before, ranks.setdefault(thread, len(ranks)), -i, where + ":" + str(line)))
    for _, _, i, text in sorted(order):  # what named something before comes first, then the outermost: names that stay
        root(w, text, pairs(frames[-i][4]), 1 if users(frames[-i][2]) else LIBRARY_FRAME)
    mine, others = [], []
    for name, module in pairs(sys.modules):
        own = known_modules.get(name) if type(name) is str else None
        if type(name) is str and (own is None or own[0] != id(module)) and MODULE in type_mro(type(module)):
            space = module_dict(module)
            path = space.get("__file__")
            told = users(path) or path is None and name not in sys.builtin_module_names and "__path__" not in space
            own = known_modules[name] = (id(module), id(space), told or name == "__main__")
        if own is not None and own[0] == id(module):
            (mine if own[2] else others).append(name)
            w.seen.add(own[1])
    tops = set(others)
    others += [name for name in mine if name.partition(".")[0] in tops]
    mine = [name for name in mine if name.partition(".")[0] not in tops]
    w.user.update([name.partition(".")[0] for name in mine])
    for name in mine:
        root(w, "module " + name, pairs(look(name)), USER_MODULE)
    root(w, "module threading", [("<thread>", thread) for thread in twice(dict.values, look("threading").get("_active") or {})], THREAD)
    for name in ("_all_tasks", "_scheduled_tasks", "_eager_tasks"):
        for part in refer(look("asyncio.tasks").get(name)):  # of a WeakSet, whose set has weak references
            inner = part.get("data") if type(part) is dict else part
            tasks = [ref() for ref in twice(set.__iter__, inner) if type(ref) is look("_weakref").get("ref")] if type(inner) is set else []
            root(w, "module asyncio", [("<task>", task) for task in tasks if task is not None], THREAD)
    w.sure[1] = (w.next_o, w.next_n, w.next_k)
    return others

def libraries(w, others):
    """Module-level containers and objects of libraries, to a small depth, when all else was looked at."""
    w.deep = w.cost + DEEP
    w.next_o, w.next_n, w.next_k = w.sure[w.cost + 1] = ([], [], [])
    for name in others:
        w.roots.append("module " + name)
        for key, value in pairs(look(name)):
            if type(key) is str and key[:2] != "__" and kind_of(w, value) is not h_function:
                push(w, value, -len(w.roots), key if plain(key) else "[*]", 1 + (key[:1] == "_"))
        if late(w):
            return
    run(w)

def text_of(w, memo, node):
    chain = []
    while node >= 0 and node not in memo:
        chain.append(node)
        node = w.parents[node]
    text = memo[node] if node >= 0 else str(-node - 1) + " "
    for node in reversed(chain):
        label = w.labels[node]
        if text[-1] == " ":
            label = label.lstrip(".")
        elif label and (text.endswith(label + "~") or label != "[*]" and text.endswith(label + label)):
            text, label = text.rstrip("~"), "~"  # node.next.next~ is any number of them
        elif label[:2] == ".<" and label[-1] == ">" and " " not in label and text[-1] == ">" and " " not in text[text.rfind("<"):]:
            label = ""
        text = memo[node] = text + label if len(text) < TEXT else text
    return text  # a string that begins with the root's number: as many tuples would count towards a collection

def parameter(w, memo, address):
    """The path of a parameter is that of its outermost module, and its own dotted name."""
    module, name, _ = w.special[address]
    for _ in range(64):
        if module not in w.child:
            break
        module, part = w.child[module]
        name = part + name
    return text_of(w, memo, w.modules[module]) + name

def names_of(w):
    memo, owners, graphs, kinds = {}, [], [], []
    for address, node in w.found.items():
        of, name = w.states.get(address, (address, ""))
        text = parameter(w, memo, of) if of in w.special else text_of(w, memo, w.found.get(of, node))
        top, _, path = text.partition(" ")
        kind = w.special[of][2] if of in w.special else NAMED
        if name and (of in w.special or of in w.found):
            path, kind = "state of " + path + ": " + name, STATE
        owners.append((address, w.sizes[address], path, w.roots[int(top)]))
        kinds.append(kind)
    for node, count, leaves in w.graphs:
        top, _, path = text_of(w, memo, node).partition(" ")
        graphs.append(("graph", path, w.roots[int(top)], count, leaves))
    return owners, kinds, graphs

def look_at_all(frames, wanted, budget_s, before, is_thorough, collectable, start):
    w = Walk()
    for i, name in enumerate(Walk.__slots__[:29]):
        setattr(w, name, set() if i < 4 else [] if i < 11 else {})
    w.graphs, w.ages = [], [UNLIMITED, 0]
    w.cost, w.count, w.stopped, w.dicts, w.limit, w.deep = 0, 0, False, DICTS, start + budget_s, UNLIMITED
    w.begins, w.ends = wanted or (None, None)
    w.seen.update([id(globals()), id(frames), id(wanted), id(before)])
    classes(w)
    core = look("torch._C")
    guard = core.get("DisableTorchFunction") or core.get("DisableTorchFunctionSubclass")  # the former also turns modes off
    guard = guard and w.torch and guard()
    if guard:
        guard.__enter__()
    try:
        others = begin(w, frames, before)
        run(w)
        whole, missing, free = not w.stopped, not_named(w) if wanted else set(), set()
        if whole and (wanted is None or missing and is_thorough):
            free = unreachable(w, missing, collectable)
            libraries(w, others)
            missing = not_named(w) if wanted else set()
        owners, kinds, graphs = names_of(w)
    finally:
        if guard:
            guard.__exit__(None, None, None)
    return owners, {"stopped": not whole, "certain": is_thorough and not w.stopped, "objects": w.count, "seconds": clock() - start, "graphs": graphs, "kinds": kinds,
                    "missing": sorted(missing), "unreachable": free, "ages": w.ages}

def not_named(w):
    """The numbers of the wanted blocks that nothing named."""
    return set(range(1, len(w.begins) + 1)).difference([wants(w, address) for address in w.found])

def walk(frames, wanted, budget_s, before=(), is_thorough=False, collectable=None):
    start, held = clock(), gc.get_threshold()
    if held[0] > 0:  # not gc.disable: if another thread calls that, or this, meanwhile, it could not be told, and would be undone
        gc.set_threshold(NEVER, *held[1:])
    try:
        return look_at_all(frames, wanted, budget_s, before, is_thorough, collectable, start)
    finally:
        if gc.get_threshold()[0] == NEVER:
            gc.set_threshold(*held)

def kinds_of_the_language():
    def steps():
        yield
    async def coroutine():
        pass
    async def both():
        yield
    waiting = coroutine()
    waiting.close()
    try:
        raise KeyError
    except KeyError as error:
        trace = error.__traceback__
    known = [(dict, h_dict), (list, h_list), (tuple, h_tuple), (set, h_set), (frozenset, h_frozenset), (type, h_type), (FUNCTION, h_function),
             (BaseException, h_exception), (type(trace), h_traceback), (type(trace.tb_frame), h_frame),
             (type((lambda: steps).__closure__[0]), h_through), (type(type.__dict__), h_through)]
    trace = None  # its frame is this one: a cycle, which would keep all callers' variables alive
    known += [(type(value), h_generator) for value in (steps(), waiting, both())]
    known += [(T, LEAF) for T in (int, float, complex, str, bytes, bytearray, bool, range, MODULE, GETSET, MEMBER, type(steps.__code__), type(None),
              type(...), type(NotImplemented), type(int.__add__), type(str.join), type((1).__add__), type(dict.__dict__["fromkeys"]))]
    return {id(T): kind for T, kind in known}

GENERATOR = {"g": "gi_", "c": "cr_", "a": "ag_"}
SUBCLASS = {take: container(take) for take in (h_dict, h_list, h_tuple, h_set, h_frozenset, h_deque)}
PLAIN = frozenset([h_tensor, h_object, h_cache, h_local] + list(SUBCLASS) + list(SUBCLASS.values()))
KNOWN = kinds_of_the_language()
