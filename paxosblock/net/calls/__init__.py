"""Control calls: one question and one answer, over a connection or by curl."""
