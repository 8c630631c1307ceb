"""Leave compiled code: side exits, undo, a second run in eager."""
