"""What every other package may use: records, configuration, errors, run directories, seeds, statistics.

Nothing here imports torch at module level except :mod:`wootz.core.batch`.
"""
