"""A real federation: holdfast's client and server functions on Flower's SuperLink and SuperNodes.

The simulator and Flower run the same code. What differs is who runs client functions: `executor` asks SuperNodes for
them, one message per node and round. Nothing here is imported before it is needed, so holdfast does without Flower.
"""
