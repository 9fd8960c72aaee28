#!/usr/bin/env python3
"""Checks the comments of Rust files against the rules of prose in CONTRIBUTING.md.

  check.py              compares the findings of each rule with its budget; exit code 1 if they differ
  check.py RULE|FILE…   lists findings of these rules or in these files
  check.py --self-test  plants a finding of each rule, and sees that it is found

A budget only falls: who removes a finding lowers the number in BUDGET.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Findings that are left of each rule in all Rust files of the repository.
BUDGET = {
    "headless": 0,  # a doc comment that begins with a clause instead of a noun or a verb
    "tangled": 0,  # three or more of those, that, what, which, whose in one sentence
    "idiom": 0,  # words that are not the field's
    "long": 0,  # a sentence of more than MOST_WORDS words
    "empty": 207,  # a doc comment of fewer than LEAST letters: the name should say it
    "wide": 0,  # a comment line of more than MOST_COLUMNS columns
}
MOST_WORDS, LEAST, MOST_COLUMNS = 28, 24, 110

HEADLESS = re.compile(
    r"(What|Whether|How|Where|Which|Whose|Those|These|The same|Of|As|For what|That|Until then|In what)\b"
)
RELATIVE = re.compile(r"\b(those|that|what|which|whose)\b", re.IGNORECASE)
IDIOMS = (
    "so many", "whoever", "nobody", "somebody", "books", "neighbours?", "at hand", "crowds?", "for want of", "kin of",
    "steps? aside", "stands? aside", "from here on", "comes? back", "came back", "goes? out", "gives? up the",
    "is told", "are told", "tells? of", "born", "died? of", "called in", "has back", "as good as", "in so far as",
)
IDIOM = re.compile(rf"\b({'|'.join(IDIOMS)})\b", re.IGNORECASE)
MARKER = re.compile(r"\s*(//[/!]?)(?!/) ?(.*)")


def blocks(text):
    """The comments of a file: the first line's number, whether it documents, and the numbered lines with their words."""
    block = None
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = MARKER.match(line)
        documents = bool(found) and found[1] != "//"
        if block and not (found and documents == block[1]):
            yield block
            block = None
        if found:
            block = block or (number, documents, [])
            block[2].append((number, line, found[2]))


def findings(text):
    """The findings in a file: line, rule, and the words in question."""
    for first, documents, lines in blocks(text):
        words, in_code = [], False
        for number, line, part in lines:
            if part.strip().startswith("```"):
                in_code = not in_code
            elif not in_code and not part.startswith(("#", "|", "    ")) and not part.strip().startswith(("SAFETY", "http")):
                words.append(part.strip())
                if len(line) > MOST_COLUMNS and "http" not in line:
                    yield number, "wide", line.strip()
        whole = " ".join(words).strip()
        if not whole:
            continue
        if documents and len(whole) < LEAST:
            yield first, "empty", whole
        elif documents and HEADLESS.match(whole):
            yield first, "headless", whole
        for sentence in re.split(r"(?<=[.:;!?]) +", re.sub(r"`[^`]*`", "`x`", whole)):
            if len(RELATIVE.findall(sentence)) >= 3:
                yield first, "tangled", sentence
            if len(sentence.split()) > MOST_WORDS:
                yield first, "long", sentence
            for _ in IDIOM.finditer(sentence):
                yield first, "idiom", sentence


def self_test():
    """One text for each rule, and one that breaks none."""
    planted = {
        "headless": "/// Whether the block is free or not.\n",
        "tangled": "/// A block that frees those which wait for that.\n",
        "idiom": "// The memory comes back to the pool.\n",
        "long": "// " + "a " * (MOST_WORDS + 1) + "\n",
        "empty": "/// The bytes.\n",
        "wide": "// " + "a" * MOST_COLUMNS + "\n",
        None: "/// Bytes of the blocks that are handed out.\nfn bytes() {}\n// A comment.\n",
    }
    wrong = [rule for rule, text in planted.items() if {found[1] for found in findings(text)} != ({rule} - {None})]
    print(f"self-test: {len(planted) - len(wrong)} of {len(planted)} as expected {wrong or ''}")
    return bool(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    wanted, counts = sys.argv[1:], dict.fromkeys(BUDGET, 0)
    for path in sorted({name for name in listed if (ROOT / name).exists()}):
        for number, rule, words in findings((ROOT / path).read_text(encoding="utf-8")):
            counts[rule] += 1
            if path in wanted or rule in wanted:
                print(f"{path}:{number}: {rule}: {words[:140]}")
    if wanted:
        return 0
    for rule, most in BUDGET.items():
        if counts[rule] > most:
            print(f"prose: {counts[rule]} findings of {rule}, at most {most}: tests/prose/check.py {rule} lists them")
        elif counts[rule] < most:
            print(f"prose: {counts[rule]} findings of {rule}: lower its budget of {most} in tests/prose/check.py")
    return counts != BUDGET


if __name__ == "__main__":
    sys.exit(main())
