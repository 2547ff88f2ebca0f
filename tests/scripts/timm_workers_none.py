"""timm's loader decoding large pictures in the main process."""

from timm_parts import Pictures, run

run(Pictures(side=512))
