"""The Dynamo 1.6.1 wire: frames, requests, responses, records and model cards."""
