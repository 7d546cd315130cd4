"""Whose work the kernels of compiled code do: calls of graphs, found in a recording and explained.

A graph that torch.compile compiled is called as a whole. In a recording such a call is a range with
the key of the graph, and the ops in it are those that the graph's code calls, and its kernels'
launches. Each is found in the code by name and order, and so the nodes, lines and layers that it
does the work of.
"""
