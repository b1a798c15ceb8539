"""The one vocabulary for engines: everything above a dialect speaks it, whatever schema is underneath."""
