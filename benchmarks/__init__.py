"""Side-by-side measurements against peers, each in its own environment (``make peers``).

``python -m benchmarks NAME --json`` alternates both sides and prints one JSON document.
"""
