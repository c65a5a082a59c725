import itertools

import pytest

from tests.unit.figures.markup import find, number, parse, texts
from wootz.figures import Edge, Node, graph
from wootz.figures.graph import _columns, layers


def nodes(names: str) -> list[Node]:
    return [Node(name) for name in names]


def test_a_node_is_one_after_its_furthest_source():
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("a", "c"), Edge("c", "d")]
    assert layers(nodes("abcd"), edges) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_given_layer_is_kept_and_moves_what_follows():
    found = layers([Node("a"), Node("b", layer=5), Node("c")], [Edge("a", "b"), Edge("b", "c")])
    assert found == {"a": 0, "b": 5, "c": 6}


def test_a_cycle_ends():
    assert set(layers(nodes("abc"), [Edge("a", "b"), Edge("b", "c"), Edge("c", "a")])) == set("abc")


def test_a_long_chain_does_not_meet_the_recursion_limit():
    chain = [Node(str(i)) for i in range(5000)]
    found = layers(list(reversed(chain)), [Edge(str(i), str(i + 1)) for i in range(4999)])
    assert found["4999"] == 4999


def test_order_removes_crossings():
    edges = [Edge("a", "z"), Edge("b", "y"), Edge("c", "x")]
    left, right = _columns(nodes("abcxyz"), edges, layers(nodes("abcxyz"), edges))
    place = {name: i for column in (left, right) for i, name in enumerate(column)}
    crossings = sum(
        (place[e.source] - place[f.source]) * (place[e.target] - place[f.target]) < 0
        for e, f in itertools.combinations(edges, 2)
    )
    assert crossings == 0


def test_widths_follow_weights_and_dashes_signs():
    root = parse(graph(nodes("abc"), [Edge("a", "b", 2.0), Edge("b", "c", -1.0)], title="t"))
    strong, weak = [path for path in find(root, "path") if path.get("fill") == "none"]
    assert number(strong, "stroke-width") == pytest.approx(5.0)
    assert number(weak, "stroke-width") == pytest.approx(3.0)
    assert strong.get("stroke-dasharray") is None
    assert weak.get("stroke-dasharray") == "5 3"


def test_names_are_escaped_and_long_ones_cut():
    name = "<b>" * 40
    root = parse(graph([Node("a", name)], [], title="t"))
    assert texts(root)[0].startswith("<b>")
    assert texts(root)[0].endswith("…")
    assert name in {"".join(one.itertext()) for one in find(root, "title")}


def test_no_nodes_is_said():
    assert texts(parse(graph([], [], title="t"))) == ["No data"]
