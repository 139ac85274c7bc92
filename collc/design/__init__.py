"""Direct-connect designs: regular graphs of GPUs, what a collective costs on them, and which one to take.

A design is a `graph.Graph` with a recipe that builds it again. `eager` prices the breadth-first
schedule exactly, `plan` writes schedules out, `expand` makes large designs of small ones, `find`
looks for the best. Costs are those of the paper: T_L steps, and T_B in units of M/B, where M is the
whole gathered message and B what a vertex can send through all its ports.

Source: Efficient Direct-Connect Topologies for Collective Communications (arXiv:2202.03356).
"""
