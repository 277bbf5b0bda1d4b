"""Pure functions from tables to tables: METHODS, one module per section. Never parses, never draws.

Flow: steps (b) -> match (c) -> clock (d) -> waits (e.2) -> decompose (a) per rank and device -> blame (e.3) ->
cause and stragglers (e.4-e.7) -> path (e.8), bandwidth (f), goodput (g). ``traceview.pipeline`` runs them.
"""
