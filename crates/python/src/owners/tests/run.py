"""All tests under one interpreter: python run.py [-v]."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
found = unittest.defaultTestLoader.discover(os.path.dirname(os.path.abspath(__file__)), "test_*.py")
result = unittest.TextTestRunner(verbosity=2 if "-v" in sys.argv else 1).run(found)
failed = len(result.failures) + len(result.errors)
print("%d passed, %d failed, %d skipped" % (result.testsRun - failed - len(result.skipped), failed, len(result.skipped)))
sys.exit(failed > 0)
