"""A whole serving stack as child processes: broker, engines, workers and the stock Dynamo frontend."""
