"""What a run shows: figures gathered (`meter`, `sight`) into a snapshot (`snapshot`), drawn in a terminal (`live`),
written as lines without one (`plain`), or saved as a picture (`display`); `figures` words numbers and times.
"""
