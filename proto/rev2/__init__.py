"""Generated stubs of OpenEngine revision 2 (commit cea19cb)."""
