"""Tables on the terminal; Markdown if the output is not a terminal."""

from typing import Any

from pcfi.experiments.tables.text_tables import TextTable


def print_table(table: TextTable, console: Any) -> None:
    """Print a table."""
    if not console.is_terminal:
        console.out(f"\n{table.title}\n\n{table.markdown()}", highlight=False, end="")
        return
    from rich.table import Table
    from rich.text import Text

    rendered = Table(title=table.title, title_justify="left")
    for column, name in enumerate(table.head):
        rendered.add_column(name, justify="left" if column < table.text_columns else "right")
    for row in table.rows:
        rendered.add_row(*map(Text, row))
    console.print(rendered)
