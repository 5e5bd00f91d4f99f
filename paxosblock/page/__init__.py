"""The status page: what a person sees of a node.

It knows no role and no network. It is given an object that answers calls (`views.Calls`), makes a
struct of the answers (`views`), and text of the struct (`rendering`). So what the page shows, its
caller could have asked for.
"""
