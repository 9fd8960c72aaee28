"""The last word: a Markdown table, on the terminal and in summary.md."""


def markdown(session, machine):
    """The table of all results, after a line on the machine."""
    lines = ["# gpu-check", "", machine, "", "| | section | what | seen |", "|---|---|---|---|"]
    for row in session.results:
        detail = row["detail"].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row['status']} | {row['section']} | {row['name']} | {detail} |")
    tally = {}
    for row in session.results:
        tally[row["status"]] = tally.get(row["status"], 0) + 1
    lines += ["", ", ".join(f"{count} {status}" for status, count in sorted(tally.items()))]
    tables = session.out / "tables.md"
    if tables.exists():
        lines += ["", tables.read_text(encoding="utf-8")]
    return "\n".join(lines) + "\n"
