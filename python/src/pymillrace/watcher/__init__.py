"""Measures where a data loader's time goes, without changing the loop that uses it.

Its calls are in api.py. Importing the package itself imports nothing: `pymillrace top` reads records only.
"""
