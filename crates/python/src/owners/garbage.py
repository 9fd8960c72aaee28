# Tensors that wait for the collector: only a cycle of unreachable objects refers to them

ROUNDS, WIDTH, ISLAND, TRIED = 24, 64, 20000, 8

def island(pool, pooled, at):
    """All objects that lead to pool[at], by id, if nothing else refers to any of them: the collector will free them. Else None.

    No variable of this function holds one of them: a frame would be a referrer, and a reference more."""
    members = {id(pool[at]): pool[at]}
    level = (pool[at],)  # a tuple, which the call takes as it is
    for _ in range(ROUNDS):
        ours = {id(pool), id(members), id(level)}
        level = tuple([value for value in gc.get_referrers(*level) if id(value) not in members and id(value) not in ours])
        if not level:
            break
        if len(level) > WIDTH or len(members) > ISLAND:
            return None
        members.update([(id(value), value) for value in level])
    else:
        return None
    counts, one = dict.fromkeys(members, 0), {0: []}
    for identity in counts:
        for part in [id(part) for part in refer(members[identity])]:
            if part in counts:
                counts[part] += 1
    alone = sys.getrefcount(one[0])
    return members if all([sys.getrefcount(members[i]) == alone + counts[i] + (i in pooled) for i in counts]) else None

def beneath(w, members):
    """The ids of all that hangs on an island, and of the island."""
    below, reached = list(members.values()), set(members)
    while below and len(reached) < ISLAND:
        for part in refer(below.pop()):
            if id(part) not in reached and id(part) not in w.seen and kind_of(w, part) is not LEAF:
                reached.add(id(part))
                below.append(part)
    return reached

def tensor_types(w):
    """The ids of all types of tensors, also of those that the walk did not meet."""
    below, found = [look(module).get(name) for module, name, _ in TABLE], {}
    while below:
        T = below.pop()
        if T is not None and id(T) not in found:
            found[id(T)] = T
            below += type.__subclasses__(T)
    w.types += found.values()  # so that their ids stay their own
    return set(found)

def unreachable(w, missing):
    """The blocks of `missing`, by number, that have a tensor which waits for the collector."""
    pool, blocks, free, types = [], [], set(), tensor_types(w)
    for value in [value for value in gc.get_objects() if id(type(value)) in types and id(value) not in w.seen] if missing else ():
        block = wants(w, bounds(w, value)[0]) if kind_of(w, value) is h_tensor else 0
        if block in missing:
            pool.append(value)
            blocks.append(block)
    value, pooled = None, set(map(id, pool))
    order = sorted(range(len(pool)), key=lambda at: w.begins[blocks[at] - 1] - w.ends[blocks[at] - 1])
    for at in order[:1000]:
        if blocks[at] not in free and not late(w):
            members = island(pool, pooled, at)
            if members is not None:
                reached = beneath(w, members)
                free.update([block for tensor, block in zip(pool, blocks) if id(tensor) in reached])
            members = None
    return free
