# Tensors that wait for the collector: only unreachable objects refer to them

def tensor_types(w):
    """All types of tensors, also those that the walk did not meet."""
    below, found = [look(module).get(name) for module, name, _ in TABLE], {}
    while below:
        T = below.pop()
        if T is not None and id(T) not in found:
            found[id(T)] = T
            below += type.__subclasses__(T)
    return tuple(found.values())

def unreachable(w, missing, collectable):
    """The blocks of `missing`, by number, that only tensors have which wait for the collector."""
    types = tensor_types(w) if missing else ()
    found = collectable(gc.get_objects, types, max(int((w.limit - clock()) * 1e6), 0)) if types else ()
    return missing.intersection([wants(w, bounds(w, value)[0]) for value in found if kind_of(w, value) is h_tensor])
