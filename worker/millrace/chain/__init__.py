"""From a manifest to a chain: importing the functions it names, and putting the strategies together.

`load` imports them and finds out how each is to be called, `build` makes the chain that an engine submits to,
`stage_stats` the figures of its stages, which outlive a chain that has to be built again. Nothing here runs a message.
"""

from millrace.chain.build import build, stage_stats
from millrace.chain.functions import Functions, MakeStrategy, load

__all__ = ["Functions", "MakeStrategy", "build", "load", "stage_stats"]
