"""Makes a report something to look at: report.html, one file that needs nothing else, and its plots as PNG files.

In: a `Report`, and the layer-by-layer findings if there are any.
Out: `OUT/<model>/validate/<target>/report.html` and `plots/*.png`. `python -m validate.page OUT/<model>` makes them
again from report.json.
"""

from validate.page.page import PAGE, write_page

__all__ = ["PAGE", "write_page"]
