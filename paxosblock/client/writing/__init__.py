"""Files being written: chunks proposed to DataNodes, blocks one after the other."""
