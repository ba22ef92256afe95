"""Shows values in the formats that clients of the code interpreter know.

Tables come as their columns, figures of matplotlib as the chart they draw, lists and dictionaries
as JSON, and an image that is saved or shown is displayed. Nothing is imported for this before the
code has imported it itself: a table can only exist where pandas is.
"""

import importlib.abc
import importlib.machinery
import sys

from IPython.core.formatters import BaseFormatter, JSONFormatter
from traitlets import ObjectName, Unicode


class DataFormatter(BaseFormatter):
    """The columns of a pandas table."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict, str)

    def __call__(self, value):
        pandas = sys.modules.get("pandas")
        if pandas is None or not isinstance(value, getattr(pandas, "DataFrame", ())):
            return super().__call__(value)

        def plain(cell):
            if cell is pandas.NaT:
                return None
            return cell.isoformat() if isinstance(cell, pandas.Timestamp) else cell

        columns = value.to_dict(orient="list")
        return to_json({key: [plain(cell) for cell in cells] for key, cells in columns.items()})


class ChartFormatter(BaseFormatter):
    """The chart that a figure of matplotlib draws."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict, str)

    def __call__(self, value):
        figures = sys.modules.get("matplotlib.figure")
        if figures is None or not isinstance(value, figures.Figure):
            return super().__call__(value)
        from e2b_charts import chart_figure_to_dict

        try:
            return chart_figure_to_dict(value)
        except Exception:
            # A figure that is no known chart is still an image.
            return {}


class PlainJSONFormatter(JSONFormatter):
    """Lists and dictionaries as JSON, with the numbers of numpy in them."""

    def __call__(self, value):
        if isinstance(value, (list, dict)):
            converted = to_json(value)
            if converted is not None:
                return converted, {"expanded": True}
        return super().__call__(value)


def to_json(value):
    """The value with nothing but what JSON has, or nothing if that cannot be."""
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    try:
        return orjson.loads(orjson.dumps(value, default=str, option=options))
    except (TypeError, ValueError):
        return None


def display_images():
    """Displays every image of PIL that is saved under a name or shown."""
    from IPython.display import display
    from PIL import Image, ImageShow

    save = Image.Image.save

    def save_and_display(image, place, format=None, **options):
        save(image, place, format, **options)
        if isinstance(place, str):
            display(image)

    class Displayer(ImageShow.Viewer):
        """Takes the place of a window."""

        def show(self, image, **options):
            display(image)
            return True

    Image.Image.save = save_and_display
    ImageShow._viewers.insert(0, Displayer())


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once when a module has been imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_then(module):
            execute(module)
            self.then()

        spec.loader.exec_module = execute_and_then
        return spec


def load_ipython_extension(shell):
    formatter = shell.display_formatter
    for kind in (DataFormatter, ChartFormatter, PlainJSONFormatter):
        made = kind(parent=formatter)
        formatter.formatters[made.format_type] = made
    sys.meta_path.insert(0, AfterImport("PIL.ImageShow", display_images))
    sys.meta_path.insert(0, AfterImport("PIL.Image", lambda: __import__("PIL.ImageShow")))
