"""Experiments of the paper -> runs, and their records -> tables, figures and a page."""
