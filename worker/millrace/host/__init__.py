"""What the machine has to offer to those who start processes on it: which Java (`java`), jars that are fetched once and
kept in a cache (`jars`), and children that do not outlive their parent (`tether`). Nothing here knows what the
processes are for.
"""
