"""Each kind of keeper is named."""
import asyncio
import collections
import concurrent.futures
import dataclasses
import functools
import queue
import threading
import types
import unittest
import weakref

import fakes
from fakes import Tensor, frame, owner, path, walk


class Registry:
    kept = []


class Box:
    pass


@dataclasses.dataclass
class Turn:
    prompt: object
    meta: dict = dataclasses.field(default_factory=dict)


class Slotted:
    __slots__ = ("held", "__other", "never")

    def __init__(self, held, other):
        self.held, self.__other = held, other


class Keepers(unittest.TestCase):
    def test_attribute_of_a_class(self):
        tensor = Tensor()
        Registry.kept.append(tensor)
        self.addCleanup(Registry.kept.clear)
        self.assertEqual(owner(tensor), ("Registry.kept[*]", "module test_keepers"))
        inside = Tensor()

        class Local:
            kept = {"it": inside}
        self.assertEqual(owner(inside, frame(item=Local())), ("item.__class__.kept['it']", "main train.py:7"))

    def test_closure_defaults_and_attributes_of_a_function(self):
        held, default, keyword, attribute = [Tensor() for _ in range(4)]

        def hook(x, y=default, *, k=keyword):
            return held
        hook.cache = [attribute]
        self.assertEqual(path(held, hook=hook), "hook.<closure held>")
        self.assertEqual(path(default, hook=hook), "hook.<default>")
        self.assertEqual(path(keyword, hook=hook), "hook.k")
        self.assertEqual(path(attribute, hook=hook), "hook.cache[*]")

    def test_lru_cache(self):
        tensors = [Tensor() for _ in range(3)]
        for size in (2, None):
            @functools.lru_cache(maxsize=size)
            def weights(i):
                return tensors[i]
            weights(0), weights(1)
            weights.__wrapped__.__closure__[0].cell_contents = None
            kept, tensors = [weights(0), weights(1)], [Tensor() for _ in range(3)] if size else None
            self.assertEqual([path(t, weights=weights) for t in kept], ["weights.<cache>[*]"] * 2)

    def test_traceback_of_an_exception(self):
        def fail(given):
            inner = [given]
            raise ValueError(len(inner))

        def outer(argument):
            fail(argument)
            never = 1
            return never

        def attempt(tried, arguments):
            try:
                tried(*arguments.pop())
            except Exception as error:
                return error
        tensor = Tensor()
        errors = [attempt(outer, [(tensor,)])]
        self.assertIn(path(tensor, errors=errors), ["errors[*].__traceback__." + end for end in ("fail().given", "outer().argument")])
        inner = Tensor()

        def later(error, made):
            held = made.pop()
            raise KeyError(held is None) from error
        errors = [attempt(later, [(errors.pop(), [inner])])]
        self.assertEqual(path(tensor, errors=errors).split(".")[1], "__cause__")
        self.assertEqual(path(inner, errors=errors), "errors[*].__traceback__.later().held")

    def test_arguments_of_an_exception(self):
        tensor = Tensor()
        self.assertEqual(path(tensor, error=RuntimeError("x", [tensor])), "error.args[*][*]")

    def test_suspended_generator(self):
        held, other, late = Tensor(), Tensor(), Tensor()

        def batches(first):
            held = [first]
            yield held

        def loop(first):
            for item in [late]:
                yield item
            after = 1
            return after

        def handled(sleeps):
            kept = [inner]
            try:
                raise KeyError
            except KeyError:
                if sleeps:
                    yield kept
            yield kept
        inner = Tensor()
        for sleeps in (False, True):
            after = handled(sleeps)
            next(after)
            self.assertEqual(path(inner, source=after), "source.handled().kept[*]")
        def unset(flag):
            if flag:
                first = 1
            try:
                raise KeyError
            except KeyError:
                second = inner
                yield second

        def failed():
            try:
                loaded = int("x")
            except ValueError as error:
                fallback = inner
                yield fallback
            yield loaded

        def deleted():
            large, rest = 1, inner
            del large
            try:
                raise KeyError
            except KeyError:
                yield rest

        def nested():
            try:
                before = int("x")
            except ValueError:
                one = inner
                try:
                    after = int("x")
                except ValueError:
                    two = inner
                    yield one, two
            yield before, after

        def over():
            try:
                raise KeyError
            except KeyError as error:
                pass
            kept = inner
            yield kept
        for function, arguments, names in (unset, (0,), "second"), (failed, (), "fallback"), (deleted, (), "rest"), (nested, (), "one two"), (over, (), "kept"):
            after = function(*arguments)
            next(after)
            right = ["source.%s().%s" % (function.__name__, name) for name in names.split() + ["<local>"]]
            self.assertIn(path(inner, source=after), right)
        source, looping = batches(held), loop(other)
        next(source), next(looping)
        self.assertIn(path(held, source=source), ("source.batches().first", "source.batches().held[*]"))
        self.assertEqual(path(other, source=looping), "source.loop().first")
        self.assertIn(path(late, source=looping), ("source.loop().<local>", "source.loop().item"))
        self.assertEqual(path(held, source=enumerate(map(id, source))), "source.<enumerate>[*].batches().first")

    def test_thread_local_and_target(self):
        local, mine, theirs, argument, ready, done = threading.local(), Tensor(), Tensor(), Tensor(), threading.Event(), threading.Event()
        local.held = [mine]

        def work(given):
            local.other = theirs
            ready.set()
            done.wait()
        thread = threading.Thread(target=work, args=([argument],))
        thread.start()
        ready.wait()
        try:
            self.assertEqual(path(mine, local=local), "local.held[*]")
            self.assertEqual(path(theirs, local=local), "local.other")
            self.assertEqual(owner(argument), ("<thread>._args[*][*]", "module threading"))
            self.assertEqual(owner(theirs), ("<thread>._target.<closure theirs>", "module threading"))
        finally:
            done.set()
            thread.join()

    def test_asyncio_task(self):
        tensor, found = Tensor(), []

        async def worker(held):
            while True:
                await asyncio.sleep(9)

        async def main(held):
            task = asyncio.ensure_future(worker(held))
            held = None
            await asyncio.sleep(0)
            found.append(owner(tensor, frame(task=task)))
            found.append(owner(tensor))
            task.cancel()
        asyncio.run(main(tensor))
        self.assertEqual(found[0], ("task.<Task>.worker().held", "main train.py:7"))
        self.assertIn(("worker().held"), found[1][0])

    def test_dataclass_and_slots(self):
        tensors = [Tensor() for _ in range(4)]
        turns = [Turn(tensors[0], {"hf_output": [tensors[1]]})]
        slotted = Slotted(tensors[2], (tensors[3],))
        self.assertEqual(path(tensors[0], turns=turns), "turns[*].prompt")
        self.assertEqual(path(tensors[1], turns=turns), "turns[*].meta['hf_output'][*]")
        self.assertEqual(path(tensors[2], slotted=slotted), "slotted.held")
        self.assertEqual(path(tensors[3], slotted=slotted), "slotted._Slotted__other[*]")

    def test_hook(self):
        tensor, module = Tensor(), Box()
        module._forward_hooks = collections.OrderedDict()

        def keep(*_):
            return tensor
        module._forward_hooks[3] = keep
        self.assertEqual(path(tensor, module=module), "module._forward_hooks[*].<closure tensor>")
        module._forward_hooks[3] = functools.partial(print, 1, out=[tensor])
        self.assertEqual(path(tensor, module=module), "module._forward_hooks[*].keywords['out'][*]")

    def test_deque_of_dicts(self):
        tensor = Tensor()
        self.assertEqual(path(tensor, history=collections.deque([{"loss": tensor}])), "history[*]['loss']")

    def test_containers(self):
        for value, shown in (([[1], None], "[*]"), ((1, None), "[*]"), ({"a": {1: None}}, "['a'][*]"),
                             (collections.defaultdict(list, k=[None]), "['k'][*]"), (collections.OrderedDict(x=None), "['x']"), (types.MappingProxyType({"y": None}), "['y']"),
                             (collections.namedtuple("Pair", "left right")(1, None), ".right"), (types.SimpleNamespace(n=None), ".n")):
            tensor = Tensor()

            def filled(v):
                if v is None:
                    return tensor
                if isinstance(v, types.MappingProxyType):
                    return types.MappingProxyType({k: filled(x) for k, x in v.items()})
                if isinstance(v, types.SimpleNamespace):
                    return types.SimpleNamespace(n=tensor)
                if isinstance(v, dict):
                    for k in list(v):
                        v[k] = filled(v[k])
                    return v
                if isinstance(v, list):
                    return [filled(x) for x in v]
                return type(v)(*[filled(x) for x in v]) if hasattr(v, "_fields") else tuple(map(filled, v)) if isinstance(v, tuple) else v
            self.assertEqual(path(tensor, v=filled(value)), "v" + shown)
        for kind in (set, frozenset):
            self.assertEqual(path(tensor, v=kind([tensor])), "v[*]")
        self.assertEqual(path(tensor, v={tensor: 1}), "v.<key>")
        self.assertEqual(path(tensor, v={(1, tensor): 1}), "v.<key>[*]")

    def test_queues_futures_iterators_and_methods(self):
        tensor, jobs, simple, future, box = Tensor(), queue.Queue(), queue.SimpleQueue(), concurrent.futures.Future(), Box()
        jobs.put([tensor])
        simple.put(tensor)
        future.set_result({"loss": tensor})
        box.put, box.held = [].append, tensor
        results = [tensor]
        self.assertEqual(path(tensor, jobs=jobs), "jobs.queue[*][*]")
        self.assertIn(path(tensor, jobs=simple), ("jobs.<SimpleQueue>", "jobs.<SimpleQueue>[*]"))
        self.assertEqual(path(tensor, jobs=[future]), "jobs[*]._result['loss']")
        self.assertEqual(path(tensor, jobs=iter([tensor])), "jobs.<list_iterator>[*]")
        self.assertEqual(path(tensor, jobs=zip([1], [tensor])), "jobs.<zip>[*].<list_iterator>[*]")
        self.assertEqual(path(tensor, jobs=types.MethodType(len, box)), "jobs.__self__.held")
        self.assertEqual(path(tensor, jobs=results.append), "jobs.<builtin_function_or_method>[*]")

    def test_subclasses_of_containers_with_attributes(self):
        class Output(collections.OrderedDict):
            pass

        class Rows(list):
            pass
        tensors = [Tensor() for _ in range(4)]
        output, rows = Output(), Rows([tensors[2]])
        output["logits"], output.past = tensors[0], [tensors[1]]
        rows.extra = {"x": tensors[3]}
        self.assertEqual([path(t, o=output, r=rows) for t in tensors], ["o['logits']", "o.past[*]", "r[*]", "r.extra['x']"])

    def test_weak_containers_own_nothing(self):
        tensor = Tensor()
        weak = [weakref.ref(tensor), weakref.WeakSet([tensor]), weakref.WeakValueDictionary(a=tensor), weakref.proxy(tensor),
                weakref.WeakKeyDictionary({tensor: 1})]
        self.assertIsNone(path(tensor, weak=weak))
        other = Tensor()
        self.assertEqual(path(other, weak=weakref.WeakKeyDictionary({tensor: [other]})), "weak.data[*][*]")

    def test_instances_of_a_type_by_the_names_of_others(self):
        boxes = []
        for i in range(300):
            box = Box()
            box.number, box.first, box.second = i, [Tensor()], {"k": Tensor()}
            boxes.append(box)
        boxes[200].added = Tensor()
        owners, _ = walk([frame(boxes=boxes)], None, 20)
        self.assertEqual({o[2] for o in owners if o[2].startswith("boxes")}, {"boxes[*].first[*]", "boxes[*].second['k']", "boxes[*].added"})

    def test_coroutine_and_async_generator(self):
        tensor = Tensor()

        async def steps(held):
            yield held

        async def waits(held):
            await asyncio.sleep(1)
        stream, waiting = steps(tensor), waits(tensor)
        self.assertEqual(path(tensor, s=waiting), "s.waits().held")
        waiting.close()
        with self.assertRaises(StopIteration):
            stream.asend(None).send(None)
        self.assertEqual(path(tensor, s=stream), "s.steps().held")
        with self.assertRaises(StopIteration):
            stream.aclose().send(None)


if __name__ == "__main__":
    unittest.main()
