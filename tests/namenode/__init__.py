"""The NameNode's parts, one by one."""
