"""Reads figures back: elements, points and axes of an SVG."""

from __future__ import annotations

from xml.etree import ElementTree

NAMESPACE = "{http://www.w3.org/2000/svg}"
Point = tuple[float, float]


def parse(svg: str) -> ElementTree.Element:
    """Parses a figure as XML, which fails on anything not well formed."""
    return ElementTree.fromstring(svg)


def find(root: ElementTree.Element, tag: str, css: str | None = None) -> list[ElementTree.Element]:
    """Elements with a tag, and with a class if given."""
    found = root.iter(f"{NAMESPACE}{tag}")
    return [one for one in found if css is None or css in (one.get("class") or "").split()]


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in find(root, "text")]


def points(polyline: ElementTree.Element) -> list[Point]:
    pairs = (pair.split(",") for pair in (polyline.get("points") or "").split())
    return [(float(x), float(y)) for x, y in pairs]


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name) or "nan")
