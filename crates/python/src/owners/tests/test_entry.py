"""What the library calls: the frames of this process, and all that it gets as text."""
import ctypes
import gc
import struct
import sys
import threading
import unittest
import weakref

import fakes
from fakes import AccumulateGrad, Node, Tensor

entry = fakes.PROGRAM["entry"]
UNSET = object()


def slots(frame, count, unset):
    """What the native side reads, by f_locals, which a test may ask for: in the order of the names."""
    code = frame.f_code
    old = sys.version_info < (3, 11)
    own = code.co_varnames
    names = own + (code.co_cellvars if old else tuple(n for n in code.co_cellvars if n not in own)) + code.co_freevars
    assert len(names) == count
    return tuple(frame.f_locals.get(name, unset) for name in names)


def asked(tensors, is_thorough=True, budget_s=20):
    """The head, and kind, path and root by address."""
    blocks = sorted((t.address, t.address + t.size) for t in tensors)
    text = entry(struct.pack("%dQ" % (2 * len(blocks)), *[word for block in blocks for word in block]), budget_s, is_thorough, slots, fakes.collectable)
    head, *lines = text.split("\n")
    found = {}
    for line in lines:
        address, kind, path, root = line.split("\t")
        found[int(address, 16)] = (kind, path, root)
    return [int(word) for word in head.split("\t")], found


class Box:
    pass


class Entry(unittest.TestCase):
    def test_names_of_running_functions(self):
        def holds(kept, number):
            inside = [Tensor()]
            captured = Tensor()
            head, found = asked([kept, inside[0], captured])
            self.assertIsNotNone((lambda: captured)())
            self.assertEqual(found[kept.address][:2], ("n", "kept"))
            self.assertEqual(found[inside[0].address][:2], ("n", "inside[*]"))
            self.assertEqual(found[captured.address][:2], ("n", "captured"))
            self.assertRegex(found[kept.address][2], r"holds test_entry.py:\d+$")
            self.assertTrue(head[0] > 3 and head[1] > 0 and head[2] == 0 and head[3] == 1)
        holds(Tensor(), 4711)

    def test_another_thread_s_variables(self):
        ready, done, address = threading.Event(), threading.Event(), []

        def works():
            state = {"kept": Tensor()}
            address.append(state["kept"])
            ready.set()
            done.wait()
        thread = threading.Thread(target=works)
        thread.start()
        ready.wait()
        tensor = address.pop()
        try:
            self.assertEqual(asked([tensor])[1][tensor.address][0], "n")
        finally:
            done.set()
            thread.join()

    def test_kinds(self):
        box, weight = Box(), Tensor()
        box._parameters, box._buffers, box._modules = {"weight": weight}, {}, {}
        weight.grad = Tensor()
        optimizer, moment = Box(), Tensor()
        optimizer.state, optimizer.param_groups = {weight: {"exp_avg": moment}}, []
        _, found = asked([weight, weight.grad, moment])
        self.assertEqual([found[t.address][:2] for t in (weight, weight.grad, moment)],
                         [("p", "box.weight"), ("g", "box.weight.grad"), ("s", "state of box.weight: exp_avg")])

    def unowned(self):
        """A block that no object has: the tensor died, its address stays."""
        tensor = Tensor()
        block = Box()
        block.address, block.size = tensor.address, 512
        return block

    def test_what_only_a_graph_keeps(self):
        block = self.unowned()
        losses = [Tensor(grad_fn=Node(AccumulateGrad(Tensor())))]
        self.assertEqual(asked([block])[1][block.address][:2], ("a", "losses[*]"))
        losses.clear()
        self.assertEqual(asked([block])[1][block.address], ("c", "", ""))

    def test_whether_all_graphs_are_younger_than_the_last_walk(self):
        block, losses = self.unowned(), [Tensor(grad_fn=Node(AccumulateGrad(Tensor())))]

        def is_new(budget_s=20):
            return asked([block], budget_s=budget_s)[0][4]
        is_new()
        self.assertEqual(is_new(), 0)
        losses[0].grad_fn = Node(losses[0].grad_fn)
        self.assertEqual(is_new(), 0)
        losses[0].grad_fn = Node()
        self.assertEqual(is_new(), 1)
        losses.clear()
        self.assertEqual(is_new(), 1)
        is_new(budget_s=0)  # sees nothing: which are younger than this one is not known
        losses.append(Tensor(grad_fn=Node()))
        self.assertEqual((is_new(), is_new()), (0, 0))

    def test_no_graph_is_named_where_two_are_as_large(self):
        block = self.unowned()
        one, two = Tensor(grad_fn=Node(Node())), Tensor(grad_fn=Node(Node()))
        self.assertEqual(asked([block])[1][block.address], ("a", "", ""))

    def test_what_waits_for_the_collector(self):
        gc.collect()
        gc.disable()
        try:
            addresses = []

            def leaves(deep):
                box, tensor = Box(), Tensor()
                box.self, box.kept = box, {"deep": [tensor, Tensor()]}
                addresses.extend(box.kept["deep"])
                try:
                    raise ValueError
                except ValueError as error:
                    box.error = error
            leaves(1)
            blocks = [Box() for _ in addresses]
            for block, tensor in zip(blocks, addresses):
                block.address, block.size = tensor.address, 512
            tensor = None
            addresses.clear()
            head, found = asked(blocks)
            self.assertEqual([found[b.address] for b in blocks], [("u", "", "")] * 2)
            self.assertEqual(head[3], 0)
            self.assertEqual(asked(blocks, is_thorough=False)[1], {})
        finally:
            gc.enable()
        self.assertGreater(gc.collect(), 3)

    def test_what_is_held_from_outside_does_not_wait_for_it(self):
        box = Box()
        box.self, box.kept = box, Tensor()
        hidden = Box()
        hidden.address, hidden.size = box.kept.address, 512
        refer_from_c(box)
        box = None
        self.assertEqual(asked([hidden])[1][hidden.address][0], "c")

    def test_no_names_when_the_time_is_up(self):
        many = [Box() for _ in range(50000)]
        block = self.unowned()
        head, found = asked([block], budget_s=0)
        self.assertEqual((head[2], found), (1, {}))
        del many

    def test_it_keeps_nothing(self):
        held = [Tensor()]
        gone = weakref.ref(held[0])
        asked(held)
        held.clear()
        self.assertIsNone(gone())


def refer_from_c(value):
    """A reference that neither the collector nor the walk sees, as C++ has."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


if __name__ == "__main__":
    unittest.main()
