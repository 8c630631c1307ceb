"""What users read: of the sites of an object, and of the traces of its code."""
