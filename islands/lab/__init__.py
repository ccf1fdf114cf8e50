"""The laboratory: what plays with the product, judges it, or measures it.

Only commands import it.
"""
