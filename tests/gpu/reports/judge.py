#!/usr/bin/env python3
"""Judges what the command says of recordings of the programs in this folder.

    tests/gpu/reports/judge.py GPUSHIM FOLDER

FOLDER has NAME.trace of each recorded program, or its memory snapshot NAME.pickle.gz. expected.json says for each number: `grows`, the bytes that a pass leaves
(`within` a part of it, 0.05 unless given) at one of the lines `sites`; `not`, kinds of findings that are false alarms;
`kind`, a finding that must be there, with the words `text`; `no_fix`, words of fixes that do not fit.
Prints a line for each wrong verdict, then the sum. Exit code 1 if there is one.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def lines(value):
    """All places `file:line` in a finding."""
    if isinstance(value, list):
        return set().union(*map(lines, value))
    if not isinstance(value, dict):
        return set()
    place = {f"{pathlib.PurePath(value['file']).name}:{value['line']}"} if value.get("file") and value.get("line") else set()
    return place.union(*map(lines, value.values()))


def wrong(findings, truth):
    """Says how the findings differ from the truth; None if they do not."""
    kinds = [one["kind"] for one in findings]
    for one in findings:
        if one["kind"] in truth.get("not", ()):
            return f"a false alarm: {one['text']}"
    if "grows" in truth:
        grown = [one for one in findings if one.get("per_iteration")]
        rates = [round(one["per_iteration"]) for one in grown]
        if not any(abs(rate / truth["grows"] - 1) <= truth.get("within", 0.05) for rate in rates):
            return f"each pass leaves {truth['grows']} bytes; said {rates or kinds or 'nothing'}"
        if truth.get("sites") and not lines(grown) & set(truth["sites"]):
            return f"the place is one of {truth['sites']}; said {sorted(lines(grown))}"
    for one in findings:
        if one.get("per_iteration") or one["kind"] == truth.get("kind"):
            for words in truth.get("no_fix", ()):
                if words in (one.get("fix") or ""):
                    return f"a fix that does not fit: {words}"
    if "kind" in truth:
        texts = [f"{one['text']} {one.get('fix') or ''}" for one in findings if one["kind"] == truth["kind"]]
        if not texts:
            return f"no finding {truth['kind']}; findings: {kinds or 'none'}"
        for words in truth.get("text", ()):
            if not any(words.lower() in text.lower() for text in texts):
                return f"it does not say `{words}`: {texts[0]}"
    return None


def main():
    command, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    expected = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
    traces = sorted([*folder.glob("*.trace"), *folder.glob("*.pickle.gz")])
    bad = 0
    for trace in traces:
        ran = subprocess.run([command, "report", str(trace), "--format", "json"], capture_output=True, text=True, timeout=120)
        try:
            said = wrong(json.loads(ran.stdout)["results"][0]["findings"], expected[trace.name.split("_")[0]])
        except (ValueError, LookupError) as error:
            said = f"{error!r}: {ran.stderr.strip()[:200]}"
        if said:
            bad += 1
            print(f"{trace.name}: {said}")
    print(f"{len(traces) - bad} of {len(traces)} programs judged rightly")
    return int(bad > 0 or not traces)


if __name__ == "__main__":
    sys.exit(main())
