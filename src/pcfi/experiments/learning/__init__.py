"""The two tasks: networks with as much as possible computed once, their training, and what is measured on them."""
