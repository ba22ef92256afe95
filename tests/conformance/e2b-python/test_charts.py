"""Charts that matplotlib draws, as data."""

from __future__ import annotations

import pytest
from e2b_code_interpreter.charts import ChartType, ScaleType


@pytest.fixture(scope="module")
def interpreter(module_garden):
    return module_garden.create("code-interpreter-v1")


def chart(interpreter, code: str):
    before = "import matplotlib.pyplot as plt\nimport numpy as np\nplt.close('all')"
    done = interpreter.run_code(f"{before}\n{code}\nplt.show()")
    assert done.error is None, done.error
    drawn = [result for result in done.results if result.chart]
    assert len(drawn) == 1 and drawn[0].png, done.results
    return drawn[0].chart


def test_lines(interpreter):
    made = chart(
        interpreter,
        "plt.plot([1, 2, 3], [4, 5, 6], label='up')\nplt.plot([1, 2, 3], [6, 5, 4], label='down')\n"
        "plt.xlabel('Time (s)')\nplt.ylabel('Height (m)')\nplt.title('Two lines')",
    )
    assert (made.type, made.title) == (ChartType.LINE, "Two lines")
    assert (made.x_label, made.x_unit, made.y_label, made.y_unit) == ("Time (s)", "s", "Height (m)", "m")
    assert (made.x_scale, made.y_scale) == (ScaleType.LINEAR, ScaleType.LINEAR)
    assert made.x_ticks and len(made.x_ticks) == len(made.x_tick_labels)
    assert [line.label for line in made.elements] == ["up", "down"]
    assert made.elements[0].points == [(1, 4), (2, 5), (3, 6)]


def test_scatter(interpreter):
    made = chart(interpreter, "plt.scatter([1, 2], [3, 4], label='dots')\nplt.title('Dots')")
    assert made.type == ChartType.SCATTER and made.title == "Dots"
    assert made.elements[0].label == "dots" and made.elements[0].points == [(1, 3), (2, 4)]


def test_bars(interpreter):
    made = chart(interpreter, "plt.bar(['a', 'b'], [10, 20])\nplt.ylabel('Books')\nplt.title('Bars')")
    assert made.type == ChartType.BAR and made.y_label == "Books"
    assert [(bar.label, float(bar.value)) for bar in made.elements] == [("a", 10.0), ("b", 20.0)]


def test_pie(interpreter):
    made = chart(interpreter, "plt.pie([25, 75], labels=['quarter', 'rest'])\nplt.title('Pie')")
    assert made.type == ChartType.PIE
    assert [(slice.label, round(slice.angle)) for slice in made.elements] == [("quarter", 90), ("rest", 270)]


def test_boxes(interpreter):
    data = "[[85, 90, 78, 92, 88], [95, 89, 76, 91, 84, 20]]"
    made = chart(interpreter, f"plt.boxplot({data}, tick_labels=['x', 'y'], patch_artist=True)\nplt.title('Boxes')")
    assert made.type == ChartType.BOX_AND_WHISKER
    first, second = made.elements
    assert (first.label, first.min, first.first_quartile, first.median) == ("x", 78, 85, 88)
    assert (first.third_quartile, first.max, first.outliers) == (90, 92, [])
    assert second.outliers == [20]


def test_several_in_one(interpreter):
    made = chart(
        interpreter,
        "figure, (left, right) = plt.subplots(1, 2)\nleft.plot([1, 2], [3, 4])\nright.bar(['a', 'b'], [1, 2])\n"
        "figure.suptitle('Both')",
    )
    assert made.type == ChartType.SUPERCHART and made.title == "Both"
    assert [each.type for each in made.elements] == [ChartType.LINE, ChartType.BAR]


def test_scales(interpreter):
    assert chart(interpreter, "plt.semilogy([1, 2], [10, 100])").y_scale == ScaleType.LOG
    dates = "import datetime as d\nplt.plot([d.date(2026, 1, 1), d.date(2026, 1, 2)], [1, 2])"
    assert chart(interpreter, dates).x_scale == ScaleType.DATETIME
    assert chart(interpreter, "plt.plot(['a', 'b'], [1, 2])").x_scale == ScaleType.CATEGORICAL


def test_pictures_without_a_shape_of_ours(interpreter):
    made = chart(interpreter, "plt.imshow(np.zeros((2, 2)))\nplt.title('Picture')")
    assert made.type == ChartType.UNKNOWN and made.title == "Picture"
