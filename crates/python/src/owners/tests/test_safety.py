"""The program does not notice: nothing of it is called, nothing lives longer, no collection starts, nothing private is told."""
import collections
import gc
import sys
import threading
import time
import unittest
import weakref

import fakes
from fakes import Tensor, frame, path, walk

CALLED = []


def hostile(name):
    def method(*arguments, **names):
        CALLED.append(name)
        raise RuntimeError(name)
    return method


DUNDERS = ("__getattr__ __getattribute__ __iter__ __len__ __bool__ __eq__ __ne__ __hash__ __repr__ __str__ __contains__ __getitem__ __dir__ __sizeof__ "
           "__reduce__ __reduce_ex__ __next__ __index__ __int__ __call__ __get__ __length_hint__ __format__ __lt__ __copy__ __deepcopy__ __instancecheck__ "
           "__subclasscheck__ __enter__ __exit__ __missing__ __reversed__ items keys values copy get").split()


class Meta(type):
    armed = False
    for name in ("__hash__", "__eq__", "__instancecheck__", "__subclasscheck__", "__len__", "__iter__", "__call__"):
        if name != "__call__":
            locals()[name] = (lambda n: lambda *a, **k: (CALLED.append("meta " + n), type.__hash__(a[0]) if n == "__hash__" else False)[1])(name)

    def __getattribute__(cls, name):
        if Meta.armed:
            CALLED.append("meta " + name)
        return type.__getattribute__(cls, name)


def make(base):
    names = {name: hostile(name) for name in DUNDERS if not (base is type and name == "__call__")}
    names["__class__"] = property(hostile("class"))
    names["lazy"] = property(hostile("lazy"))
    return Meta("Evil" + base.__name__.title(), (base,), names)


class Descriptor:
    def __get__(self, instance, owner):
        CALLED.append("descriptor")
        return Tensor()


class Hidden:
    shadow = Descriptor()
    __dict__ = property(hostile("dict"))

    def __getattribute__(self, name):
        CALLED.append(name)
        raise RuntimeError


class Hostile(unittest.TestCase):
    def test_nothing_is_called(self):
        tensors, things = [], []
        for base in (object, dict, list, tuple, set, frozenset, str, int, collections.deque, collections.OrderedDict, Exception, threading.local):
            kind = make(base)
            for _ in range(3):
                thing, tensor = base.__new__(kind), Tensor()
                (base if base is threading.local else object).__setattr__(thing, "held", [tensor])
                if base is list:
                    list.append(thing, tensor)
                if base in (dict, collections.OrderedDict):
                    dict.__setitem__(thing, "k", [tensor])
                things.append(thing)
                tensors.append(tensor)
        CALLED.clear()
        things.append(Hidden())
        Meta.armed = True
        try:
            found, facts = walk([frame(things=things)], None, 20)
        finally:
            Meta.armed = False
        self.assertEqual(CALLED, [])
        found = {o[0]: o[2] for o in found}
        self.assertEqual([found.get(t.address, "").split(".")[0] for t in tensors[:3]], ["things[*]"] * 3)
        self.assertEqual([t for t in tensors if t.address not in found], [])

    def test_keys_that_are_equal_by_a_method_of_theirs(self):
        class Key:
            def __hash__(self):
                return hash("_parameters")

            def __eq__(self, other):
                CALLED.append("eq")
                return False
        keys, tensor = [Key() for _ in range(20)], Tensor()
        table = {key: [tensor] for key in keys}
        for key in keys[::2]:
            del table[key]
        holder = type("Holder", (), {})()
        holder.__dict__.update({"a": 1})
        holder.__dict__.update(table)
        CALLED.clear()
        self.assertEqual(path(tensor, table=table), "table[*][*]")
        self.assertEqual(path(tensor, holder=holder), "holder[*][*]")
        self.assertEqual(CALLED, [])

    def test_warnings_and_modules_are_as_before(self):
        before = set(sys.modules)
        walk([frame(a=1)], None, 9)
        self.assertEqual(set(sys.modules), before)


class Thing:
    pass


class Lifetimes(unittest.TestCase):
    def test_objects_die_as_without_the_walk(self):
        def suspended(held):
            yield held
        thing, other = Thing(), Thing()
        thing.tensor, thing.many, other.slot = Tensor(), [Thing() for _ in range(50)], {"x": Thing()}
        generator = suspended(Thing())
        weak = [weakref.ref(x) for x in [thing, thing.tensor, other, other.slot["x"], next(generator)] + thing.many]
        names = dict(thing=thing, other=[other], generator=generator)
        counts = [sys.getrefcount(x()) for x in weak]
        gc.disable()
        try:
            owners, facts = walk([frame(**names)], None, 20)
            self.assertEqual([sys.getrefcount(x()) for x in weak], counts)
            del thing, other, generator
            names.clear()
            self.assertEqual([x() for x in weak if x() is not None], [])
        finally:
            gc.enable()

    def test_a_frame_of_a_traceback_keeps_no_dict(self):
        def fail():
            held = Thing()
            weak.append(weakref.ref(held))
            raise ValueError
        weak, errors = [], []
        try:
            fail()
        except ValueError as error:
            errors.append(error)
        walk([frame(errors=errors)], None, 20)
        errors[0].__traceback__ = None
        self.assertIsNone(weak[0]())

    def test_no_objects_are_left(self):
        things = [Thing() for _ in range(2000)]
        for thing in things:
            thing.a, thing.b = [], {}
        frames = [frame(things=things)]
        walk(frames, None, 20)
        gc.collect()
        gc.disable()
        before = len(gc.get_objects())
        for _ in range(3):
            walk(frames, None, 20)
        self.assertLess(len(gc.get_objects()) - before, 20)
        gc.enable()

    def test_instances_get_few_dicts_of_their_own(self):
        things = [Thing() for _ in range(5000)]
        for i, thing in enumerate(things):
            thing.a = [i]
        gc.collect()
        before = len(gc.get_objects())
        walk([frame(things=things)], None, 20)
        self.assertLess(len(gc.get_objects()) - before, 150)


class Collector(unittest.TestCase):
    def test_no_collection_starts_and_settings_stay(self):
        things = [{"a": [Tensor()], "b": ({},)} for _ in range(3000)]
        frames, seen, states = [frame(things=things)], [], []
        gc.callbacks.append(lambda phase, info: seen.append(phase))
        try:
            for i in range(2):  # the first time the interpreter's lists of free tuples may be empty, and what goes into them is not counted back
                walk(frames, None, 20)
            for enabled in (True, False):
                (gc.enable if enabled else gc.disable)()
                for threshold in ((700, 10, 10), (2000, 5, 5), (0, 10, 10)):
                    gc.set_threshold(*threshold)
                    held = gc.get_threshold()
                    gc.collect(0)
                    del seen[:]
                    counted = gc.get_count()[0]
                    walk(frames, None, 20)
                    after = gc.get_count()[0]
                    states.append((seen == [], gc.isenabled() == enabled, gc.get_threshold() == held, abs(after - counted) < 300))
                    if len(states) == 1:
                        print("count of the youngest generation before and after: %d, %d" % (counted, after), file=sys.stderr)
        finally:
            gc.callbacks.pop()
            gc.set_threshold(700, 10, 10)
            gc.enable()
        self.assertEqual(set(states), {(True, True, True, True)})

    def test_a_threshold_that_another_thread_sets_stays(self):
        things, stop = [[[] for _ in range(100)] for _ in range(3000)], threading.Event()

        def other():
            while not stop.is_set() and gc.get_threshold()[0] != 2147483647:
                pass
            gc.set_threshold(123, 4, 5)
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(.01)
        walk([frame(things=things)], None, 20)
        stop.set()
        thread.join()
        self.assertEqual(gc.get_threshold()[:2], (123, 4))
        gc.set_threshold(700, 10, 10)


class Others(unittest.TestCase):
    def test_containers_that_change_meanwhile(self):
        table, rows, queue, box, stop, tensor = {}, [], collections.deque(maxlen=100), Thing(), threading.Event(), Tensor()
        members = set()

        def change():
            i = 0
            while not stop.is_set():
                i += 1
                table[i] = table["k%d" % (i % 90)] = [tensor, {i: [i]}]
                table.pop(i - 50, None)
                rows.append({"x": [i]})
                del rows[:-40]
                queue.append((i, [i]))
                members.add((i, Thing))
                if len(members) > 60:
                    members.clear()
                setattr(box, "n%d" % (i % 40), [i])
        thread = threading.Thread(target=change)
        thread.start()
        names, interval = dict(table=table, rows=rows, queue=queue, box=box, members=members), sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            results = [path(tensor, **names) for _ in range(40)]
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            thread.join()
        self.assertLess(results.count(None), 4)

    def test_budget(self):
        things = [[{"a": [i]} for _ in range(20)] for i in range(20000)]
        begun = time.process_time()
        owners, facts = walk([frame(things=things)], None, .03)
        self.assertTrue(facts["stopped"])
        # Without the budget it would be five seconds.
        self.assertLess(time.process_time() - begun, .5)
        self.assertGreater(facts["objects"], 0)
        self.assertFalse(walk([frame(a=[Tensor()])], None, 20)[1]["stopped"])

    def test_nothing_private_is_told(self):
        secret = ["patient 12 Miller", "4111-1111", "/home/miller/x", "a" * 42, "1abc", "é", "", "a-b", "x y"]
        data, tensors = {}, []
        for key in secret + [4111, 3.25, (1, "Miller"), b"Miller", None, True]:
            tensors.append(Tensor())
            data[key] = {"value": tensors[-1], "note": "Miller 4111"}
        many = {"user_%d" % i: Tensor() for i in range(100)}
        box = Thing()
        for key in secret:
            box.__dict__[key] = Tensor()
        states = {"layers.0.weight": Tensor(), "layers.12.bias": Tensor()}
        owners, facts = walk([frame(data=data, many=many, box=box, states=states, **{"odd name 4111": Tensor()})], None, 20)
        mine = [o[2] for o in owners if o[2].startswith(("data", "many", "box", "states", "[", "odd"))]
        self.assertEqual(set(mine), {"data[*]['value']", "many[*]", "box.<attribute>", "states['layers[*].weight']", "states['layers[*].bias']", "[*]"})
        self.assertEqual([o for o in owners if any(word in o[2] + o[3] for word in ("iller", "4111", "user_", "12"))], [])

    def test_no_module_is_asked_for_its_referents(self):
        """That of asyncio tells freed objects in 3.12: a list of them frees them once more."""
        import asyncio
        asked, refer = [], fakes.PROGRAM["refer"]

        def watched(value):
            asked.append(fakes.is_module(value))
            return refer(value)
        fakes.PROGRAM["refer"] = watched
        try:
            hidden = Tensor()
            walk([frame(asyncio=asyncio, modules=dict(sys.modules))], fakes.wanted([(hidden.address, hidden.address + 512)]), 20, (), True, fakes.collectable)
        finally:
            fakes.PROGRAM["refer"] = refer
        self.assertGreater(len(asked), 100)
        self.assertFalse(any(asked))

    def test_a_cycle_and_a_deep_list_end(self):
        deep = tensor = Tensor()
        for _ in range(20000):
            deep = [deep]
        cycle = [deep]
        cycle.append(cycle)
        found = path(tensor, cycle=cycle)
        self.assertLess(len(found), 250)


if __name__ == "__main__":
    unittest.main()
