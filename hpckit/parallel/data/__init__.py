"""Real and made-up samples to train on, all in memory: images, text as bytes, random numbers.

`samples` (and random ones), `images` read from `image_files`, `texts`.
"""

from hpckit.parallel.data.image_files import IMAGE_SETS, load_images
from hpckit.parallel.data.images import Images, ImageSets, as_numbers
from hpckit.parallel.data.samples import RandomCorpus, RandomDataset, Samples
from hpckit.parallel.data.texts import TextSets, TextWindows, byte_corpus

__all__ = [
    "IMAGE_SETS",
    "ImageSets",
    "Images",
    "RandomCorpus",
    "RandomDataset",
    "Samples",
    "TextSets",
    "TextWindows",
    "as_numbers",
    "byte_corpus",
    "load_images",
]
