"""Frozen typed messages: what actors, engines and Dynamo say to each other. Imports nobody."""
