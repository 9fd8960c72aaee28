"""What is known of tensors: modules, optimizers, gradients, graphs, and arrays of other libraries."""
import collections
import sys
import types
import unittest

import fakes
from fakes import AccumulateGrad, Node, Tensor, frame, owner, path, walk


class Module:
    def __init__(self, **parts):
        self._parameters, self._buffers, self._modules, self.training = {}, {}, collections.OrderedDict(), True
        self._forward_hooks = collections.OrderedDict()
        for name, value in parts.items():
            (self._modules if isinstance(value, Module) else self._parameters)[name] = value

    def __getattr__(self, name):
        raise AssertionError("called")


class Optimizer:
    def __init__(self, parameters):
        self.state, self.param_groups = collections.defaultdict(dict), [{"lr": 1, "params": list(parameters)}]
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter] = {"step": 1, "exp_avg": Tensor(), "exp_avg_sq": Tensor()}


def model():
    layers = Module(**{str(i): Module(linear=Module(weight=Tensor(), bias=None)) for i in range(3)})
    return Module(layers=layers, head=Module(weight=Tensor()))


class Torch(unittest.TestCase):
    def setUp(self):
        self.model = model()
        self.inner = self.model._modules["layers"]._modules["1"]._modules["linear"]
        self.weight = self.inner._parameters["weight"]

    def test_parameters_are_named_by_their_outermost_module(self):
        self.model._buffers["mean"] = buffer = Tensor()
        inner = frame("forward", "/opt/python/site-packages/torch/nn/linear.py", 12, self=self.inner)
        for frames in ([frame(model=self.model)], [inner, frame(model=self.model)], [frame("forward", self=self.inner), frame(model=self.model)]):
            self.assertEqual(owner(self.weight, *frames), ("model.layers[*].linear.weight", "main train.py:7"))
        self.assertEqual(path(buffer, model=self.model), "model.mean")
        self.assertEqual(path(self.weight, wrapped=[Module(module=self.model)], model=self.model), "wrapped[*].module.layers[*].linear.weight")

    def test_gradients_and_states_of_an_optimizer(self):
        self.weight.grad = Tensor()
        optimizer, loose = Optimizer([self.weight]), Tensor()
        optimizer.param_groups[0]["params"].append(loose)
        optimizer.state[loose] = {"exp_avg": Tensor()}
        names = dict(model=self.model, optimizer=optimizer, loose=loose)
        self.assertEqual(path(self.weight.grad, **names), "model.layers[*].linear.weight.grad")
        self.assertEqual(path(optimizer.state[self.weight]["exp_avg"], **names), "state of model.layers[*].linear.weight: exp_avg")
        alone = Optimizer([Tensor()])
        state = list(alone.state.values())[0]["exp_avg_sq"]
        self.assertEqual(path(state, optimizer=alone), "state of optimizer.param_groups[*]['params'][*]: exp_avg_sq")
        self.assertEqual(path(optimizer.state[loose]["exp_avg"], **names), "state of loose: exp_avg")
        loose.grad = Tensor()
        self.assertEqual(path(loose.grad, x=[loose]), "x[*].grad")

    def test_a_cycle_of_modules_ends(self):
        self.model._modules["again"] = self.model
        self.assertIn("linear.weight", path(self.weight, model=self.model))

    def test_graphs(self):
        node = Node(Node(AccumulateGrad(self.weight), None), AccumulateGrad(self.inner._parameters["weight"]))
        node.next_functions = ((node.next_functions[0][0], 0), (None, 0))
        loss = Tensor(grad_fn=Node(node, node))
        _, facts = walk([frame(losses=[loss])], ([], []), 9)
        self.assertEqual(facts["graphs"], [("graph", "losses[*]", "main train.py:7", 4, [self.weight.address])])
        second = Tensor(grad_fn=Node(node))
        self.assertEqual([g[3] for g in walk([frame(losses=[loss, second])], ([], []), 9)[1]["graphs"]], [4, 1])
        self.assertEqual(walk([frame(fn=node)], ([], []), 9)[1]["graphs"][0][1:4], ("fn", "main train.py:7", 3))

    def test_what_a_function_of_the_program_keeps_in_its_context(self):
        class SmoothGateBackward(fakes.FunctionBase):
            pass
        context, gate = SmoothGateBackward(), Tensor()
        context.gate = gate
        self.assertEqual(path(gate, loss=Tensor(grad_fn=Node(context))), "loss.grad_fn.gate")
        cycle = Tensor(grad_fn=context)
        context.out = cycle
        self.assertEqual(path(cycle, loss=cycle), "loss")

    def test_long_graphs(self):
        node = Node()
        for _ in range(50000):
            node = Node(node)
        loss = Tensor(grad_fn=node)
        self.assertEqual(walk([frame(loss=loss)], None, 20)[1]["graphs"][0][3], 50001)
        while node.next_functions:  # or its end would be a recursion
            node, loss.grad_fn = node.next_functions[0][0], None

    def test_tensors_without_memory_are_skipped(self):
        fake, real = Tensor(fake=True), Tensor()
        fake.size = "x"
        owners, _ = walk([frame(fake=[fake], real=real)], None, 9)
        self.assertIn(real.address, [o[0] for o in owners])
        self.assertNotIn(None, [o[0] for o in owners])

    def test_wanted(self):
        tensors = [Tensor() for _ in range(100)]
        wanted = sorted((t.address - 16, t.address + 64) for t in tensors[::3])
        owners, _ = walk([frame(tensors=tensors)], fakes.wanted(wanted), 9)
        self.assertEqual(sorted(o[0] for o in owners), sorted(t.address for t in tensors[::3]))
        self.assertEqual(walk([frame(tensors=tensors)], ([], []), 9)[0], [])

    def test_libraries_are_looked_at_only_for_what_is_missing(self):
        near, far = Tensor(), Tensor()
        fakes.library("somelib", cache=[far])
        try:
            blocks = [(t.address, t.address + 512) for t in (near, far)]
            self.assertEqual([o[3] for o in walk([frame(x=near)], fakes.wanted(blocks), 9, (), True, fakes.collectable)[0]], ["main train.py:7", "module somelib"])
            all_of_it = walk([frame(x=near)], fakes.wanted(blocks), 9, (), True, fakes.collectable)[1]["objects"]
            self.assertLess(walk([frame(x=near)], fakes.wanted(blocks[:1]), 9, (), True, fakes.collectable)[1]["objects"], all_of_it - 50)
        finally:
            del sys.modules["somelib"]

    def test_torch_function_is_off_meanwhile_and_on_again(self):
        fakes.Guard.entered = 0
        walk([frame(a=Tensor())], None, 9)
        self.assertEqual((fakes.Guard.entered, fakes.Guard.depth), (1, 0))
        with self.assertRaises(Exception):
            walk([("not", "a frame")], None, 9)
        self.assertEqual(fakes.Guard.depth, 0)

    def test_without_torch(self):
        saved = {name: sys.modules.pop(name) for name in ("torch", "torch._C")}
        try:
            self.assertEqual(walk([frame(a=Tensor())], None, 9)[0], [])
        finally:
            sys.modules.update(saved)

    def test_cupy_and_numba(self):
        class Memory:
            __slots__ = ("ptr", "size")

        class Pointer:
            __slots__ = ("mem",)

        class ndarray:
            __slots__ = ("data",)

        class DeviceNDArrayBase:
            pass
        array, numba, owned = ndarray(), DeviceNDArrayBase(), types.SimpleNamespace(device_pointer=9 << 40, size=64)
        array.data = Pointer()
        array.data.mem = Memory()
        array.data.mem.ptr, array.data.mem.size = 7 << 40, 4096
        numba.gpu_data = types.SimpleNamespace(_view=owned)
        modules = [fakes.library("cupy", ndarray=ndarray), fakes.library("numba.cuda.cudadrv.devicearray", DeviceNDArrayBase=DeviceNDArrayBase)]
        try:
            owners, _ = walk([frame(x={"a": [array], "b": numba})], fakes.wanted([(7 << 40, 8 << 40), (9 << 40, 10 << 40)]), 9)
            self.assertEqual(sorted(o[:3] for o in owners), [(7 << 40, 4096, "x['a'][*]"), (9 << 40, 64, "x['b']")])
        finally:
            for module in modules:
                del sys.modules[module.__name__]

    def test_another_kind_can_be_registered(self):
        class Array:
            __slots__ = ("address",)
        array, entry = Array(), ("fakelib", "Array", lambda w, value: (value.address, 3))
        array.address = 5 << 40
        fakes.library("fakelib", Array=Array)
        fakes.PROGRAM["TABLE"].append(entry)
        try:
            self.assertIn((5 << 40, 3, "x[*]", "main train.py:7"), walk([frame(x=[array])], None, 9)[0])
        finally:
            fakes.PROGRAM["TABLE"].remove(entry)
            del sys.modules["fakelib"]


class Roots(unittest.TestCase):
    def test_the_shortest_path_wins(self):
        tensor = Tensor()
        deep = [[[[tensor]]]]
        self.assertEqual(path(tensor, deep=deep, near={"x": [tensor]}), "near['x'][*]")

    def test_frames_before_modules_before_libraries(self):
        tensor = Tensor()
        user, installed = types.ModuleType("mytool"), fakes.library("somelib", cache=[tensor], _other={"a": [tensor]})
        user.__file__, user.held = "/home/someone/mytool.py", [tensor]
        sys.modules["mytool"] = user
        try:
            own = frame(a=[[tensor]])
            library = frame("step", "/opt/python/site-packages/torch/optim/adam.py", 9, exp_avgs=tensor)
            self.assertEqual(owner(tensor, library, own), ("a[*][*]", "main train.py:7"))
            self.assertEqual(owner(tensor, library), ("held[*]", "module mytool"))
            del user.held
            self.assertEqual(owner(tensor, library), ("exp_avgs", "step adam.py:9"))
            self.assertEqual(owner(tensor), ("cache[*]", "module somelib"))
        finally:
            del sys.modules["mytool"], sys.modules["somelib"]

    def test_private_attributes_of_libraries_are_longer(self):
        class Trainer:
            pass
        fakes.library("somelib", Trainer=Trainer)
        trainer, tensor = Trainer(), Tensor()
        trainer._saved = tensor
        trainer.results = [[tensor]]
        try:
            self.assertEqual(path(tensor, trainer=trainer), "trainer.results[*][*]")
        finally:
            del sys.modules["somelib"]

    def test_outermost_first_and_what_named_something_before(self):
        tensor = Tensor()
        frames = [frame("inner", line=3, x=[tensor]), frame("outer", line=9, y=[tensor])]
        self.assertEqual(owner(tensor, *frames), ("y[*]", "outer train.py:9"))
        self.assertEqual(owner(tensor, *frames, before=["inner train.py"]), ("x[*]", "inner train.py:3"))

    def test_it_is_the_same_each_time(self):
        things = [{"a": Tensor(), "b": [Tensor()]} for _ in range(200)]
        frames = [frame(things=things, model=model())]
        self.assertEqual(walk(frames, None, 9)[0], walk(frames, None, 9)[0])

    def test_long_chains_have_short_names(self):
        class Link:
            pass
        first = link = Link()
        for _ in range(3000):
            link.next = Link()
            link = link.next
        link.held = tensor = Tensor()
        self.assertEqual(path(tensor, first=first), "first.next.next~.held")
        while first.__dict__.get("next"):
            first = first.__dict__.pop("next")


if __name__ == "__main__":
    unittest.main()
