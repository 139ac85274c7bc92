"""collc: a compiler for collective communication.

It reads a description of a GPU cluster, makes a provably good schedule for a collective, checks it
at every level and writes the files that vendor libraries load at job launch.
"""

__version__ = "0.1.0"
