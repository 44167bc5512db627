"""Graph to graph: specialise, fold, canonicalise, fuse, choose layouts, partition, plan memory."""
