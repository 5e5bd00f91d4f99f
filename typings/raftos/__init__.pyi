# raftos 0.2.6 has no types. These are of the parts that the engine overrides or relies on.
