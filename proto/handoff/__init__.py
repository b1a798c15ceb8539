"""The bytes of a KV session, cut out of and put into messages that are otherwise decoded."""
