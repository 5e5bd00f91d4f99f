"""The volumes of a DataNode: each a disk that answers, until it fails."""
