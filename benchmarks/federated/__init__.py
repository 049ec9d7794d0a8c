"""The parts of ``benchmarks/federated.py``: the workloads, one small script per system, the watch."""
