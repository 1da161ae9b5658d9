"""Configuration of the documentation site: `make docs`."""

import os
import tomllib
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "agg")
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCE = PROJECT["urls"]["Source"]

project, author, copyright = "pcfi", "The pcfi developers", "The pcfi developers"  # noqa: A001  names of Sphinx
version = release = PROJECT["version"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # pages with formulas need no network either
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery_scripts"]

# pages
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]  # the sorting of the gallery is a function

# reference
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say what is accepted, in words
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "set_fit_request, set_transform_request"}  # made by scikit-learn
numpydoc_show_class_members = False
templates_path = ["_templates"]

# gallery: run once; a script runs again when its text changes
sphinx_gallery_conf = {
    "examples_dirs": ["gallery_scripts"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib",),
}

# site
html_theme = "pydata_sphinx_theme"
html_title = f"pcfi {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "github_url": SOURCE,
    "use_edit_page_button": False,
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
linkcheck_ignore = [r"https://github\.com/pcfi-developers/.*", r"https://pcfi\.readthedocs\.io.*"]  # until they exist
