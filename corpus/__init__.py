"""Programs that bcmend is measured on: data for the tests, never part of the package."""
