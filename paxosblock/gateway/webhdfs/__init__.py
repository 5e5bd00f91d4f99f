"""WebHDFS v1: the door for Hadoop's own programs, and for those that were written for HDFS."""
