"""Section `conformance`."""

from .basics import first_difference
from .session import ROOT


def conformance(session, built):
    """What this driver says to tests/conformance; compared with the recording, natively and shimmed."""
    if "conformance" not in built:
        return session.result("conformance", "build", "FAIL", "tests/conformance was not built")
    natively = session.run("conformance", [session.work / "conformance"], timeout=120)
    (session.out / "recorded.txt").write_text(natively.stdout, encoding="utf-8")
    lines = len(natively.stdout.splitlines())
    session.result("conformance", "native", "PASS" if natively.ok and lines else "FAIL", f"{lines} lines, code {natively.code}")
    recording = ROOT / "tests" / "conformance" / "recorded.txt"
    if recording.exists():
        same = recording.read_text() == natively.stdout
        detail = "as recorded" if same else first_difference(recording.read_text(), natively.stdout)
        session.result("conformance", "against the recording", "PASS" if same else "FAIL", detail)
    shimmed = session.run("conformance", [session.work / "conformance"], shim=True, timeout=120)
    same = shimmed.stdout == natively.stdout and shimmed.code == natively.code
    # Shown, not judged: a cached block is where the shim means to differ (its free does not wait).
    detail = "the same under the shim" if same else f"code {shimmed.code}: " + first_difference(natively.stdout, shimmed.stdout)
    return session.result("conformance", "under the shim", "INFO", detail)
