# Tensors among all objects that the collector knows: also those to which no name leads

def tensor_types(w):
    """All types of tensors, also those that the walk did not meet."""
    below, found = [look(module).get(name) for module, name, _ in TABLE], {}
    while below:
        T = below.pop()
        if T is not None and id(T) not in found:
            found[id(T)] = T
            below += type.__subclasses__(T)
    return tuple(found.values())

def in_heap(w, missing, heap, is_thorough):
    """The blocks of `missing`, by number, that a tensor has, and those that only tensors have which wait for the collector."""
    types = tensor_types(w) if missing else ()
    micros = max(int((w.limit - clock()) * 1e6), 0) if is_thorough else 0
    tensors, free = heap(gc.get_objects(), types, micros) if types else ((), ())
    return [missing.intersection([wants(w, bounds(w, value)[0]) for value in values if kind_of(w, value) is h_tensor])
            for values in (tensors, free)]
