"""Makes jpeg.txt: what torchvision's JPEG makes of the image of values.txt.

    python3 jpeg.py > jpeg.txt

Made with torchvision 0.29.2. A line has a quality, and the pixels of the square as rows of RGB in hexadecimal digits.
"""

from torchvision.transforms.v2 import JPEG
from values import image, line


def main():
    for quality in [1, 10, 50, 75, 95, 100]:
        line(quality, JPEG(quality)(image()))


if __name__ == "__main__":
    main()
