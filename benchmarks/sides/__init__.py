"""What the benchmarks compare: filbert and other tools at the same work, in turns."""
