"""Settings of the documentation site: `make docs` builds it (`build_site`)."""

from importlib.metadata import version as find_version

project = "mx-align"
author = "the mx-align maintainers"
release = version = find_version("mx-align")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"  # light and dark, small, nothing from elsewhere
html_title = f"mx-align {release}"
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
root_doc = "index"
exclude_patterns = ["*.py"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
smartquotes = False  # they would make one dash of the two of a flag
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_use_rtype = False
