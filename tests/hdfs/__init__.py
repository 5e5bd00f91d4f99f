"""HDFS's own tables (*Append/Hflush/Read Design*, HDFS-265), row by row, against our classes."""
