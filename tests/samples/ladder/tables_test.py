import json
import math

from tables import figure, ranged, table, to_json


def test_a_figure_stands_beside_its_interval():
    record = figure("speedup", 1.19, (1.1, 1.27))
    assert record == {"speedup": 1.19, "speedup_interval": {"low": 1.1, "high": 1.27}}
    assert ranged(record, "speedup") == "×1.19 (×1.10 to ×1.27)"
    assert ranged(record, "cost") == "-"


def test_a_range_that_is_open_is_null_in_json():
    record = figure("speedup", 1.5, (-math.inf, math.inf))
    assert json.loads(to_json({"steps": [record]})) == {
        "steps": [{"speedup": 1.5, "speedup_interval": {"low": None, "high": None}}]}


def test_a_table_is_aligned_markdown():
    assert table(("a", "long"), [(1, "x"), ("wide cell", 2)]) == (
        "| a         | long |\n| --------- | ---- |\n| 1         | x    |\n| wide cell | 2    |")
