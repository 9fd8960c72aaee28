"""What scripts/gpu-check is made of: runs, traces, sections, summary."""
