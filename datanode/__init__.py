"""The DataNode: keeps replicas, and answers for each as one acceptor of the chunk consensus."""
