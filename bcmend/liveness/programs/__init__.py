"""The programs, by what they are about; ``loading`` has them run as code of a user."""
