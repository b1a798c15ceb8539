"""The roles an engine can play, each a strategy for what differs: sessions taken in, handed out, and let go."""
