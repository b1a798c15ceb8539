"""KV events and load: what the engine says of its cache, in the form and order that Dynamo's routers rely on."""
