"""Makes a report something to look at: report.html, one file that needs nothing else, and its plots as PNG files.

In: a `Report`, with layer-by-layer findings or without.
Out: `OUT/<model>/validate/<target>/report.html` and `plots/*.png`. `python -m validate.page
OUT/<model>/validate/<target>` makes them again from report.json.
"""

from validate.page.page import write_page

__all__ = ["write_page"]
