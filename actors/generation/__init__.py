"""Translation between Dynamo's requests and the engines' vocabulary: pure, no I/O, no actor."""
