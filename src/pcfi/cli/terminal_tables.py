"""Tables on the terminal; Markdown where the output is not one."""

from typing import Any

from pcfi.experiments.tables import Table


def print_table(table: Table, console: Any) -> None:
    """Print a table."""
    if not console.is_terminal:
        console.out(f"\n{table.title}\n\n{table.markdown()}", highlight=False, end="")
        return
    from rich.table import Table as Painted
    from rich.text import Text

    painted = Painted(title=table.title, title_justify="left")
    for place, name in enumerate(table.head):
        painted.add_column(name, justify="left" if place < table.numbers else "right")
    for row in table.rows:
        painted.add_row(*map(Text, row))
    console.print(painted)
