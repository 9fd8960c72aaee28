"""Several checks at a time, where nothing is timed; one's trouble does not cost the others."""

import os
from concurrent.futures import ThreadPoolExecutor


def together(session, section, checks, workers=4):
    """Runs the checks (name -> function without arguments), so many at a time."""
    with ThreadPoolExecutor(max_workers=min(workers, os.cpu_count() or 1)) as pool:
        for name, job in [(name, pool.submit(check)) for name, check in checks.items()]:
            try:
                job.result()
            except Exception as error:  # It becomes a line of the table.
                session.result(section, name, "FAIL", f"gpu-check itself: {type(error).__name__}: {error}"[:300])
