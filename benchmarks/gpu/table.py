"""Print the table of the README from `h200.json`: `python -m benchmarks.gpu.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "h200.json"


def cell(value: Any) -> str:
    """Show a figure in at most three digits, or nothing for none."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"


def main() -> None:
    """Print the table, then the machine."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    print("| case | unit | median | p10 to p90 | limit | stock |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for row in results["rows"]:
        low, high = row.get("p10"), row.get("p90")
        spread = "" if low is None else f"{cell(low)} to {cell(high)}"
        figures = [cell(row["median"]), spread, cell(row.get("limit")), cell(row.get("stock"))]
        print(f"| {row['case']} | {row['unit']} | {' | '.join(figures)} |")
    print()
    print("; ".join(f"{name} {value}" for name, value in results["machine"].items()))


if __name__ == "__main__":
    main()
